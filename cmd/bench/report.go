package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// publish prints the report, and writes it and the plot where a file was named.
func (b *bench) publish(ctx context.Context) error {
	machine := fmt.Sprintf("%s/%s, %d CPUs, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().Format(time.DateOnly))
	picture := ""
	if b.out != "" && b.plotter != "" && len(b.found.samples) > 0 {
		picture = strings.TrimSuffix(b.out, filepath.Ext(b.out)) + ".svg"
		if err := b.draw(ctx, picture, machine); err != nil {
			return err
		}
	}
	text := b.report(machine, filepath.Base(picture))
	fmt.Print(text)
	if b.out == "" {
		return nil
	}
	if err := os.WriteFile(b.out, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// report is the run as Markdown.
func (b *bench) report(machine, picture string) string {
	var w strings.Builder
	fmt.Fprintf(&w, "# Benchmarks\n\nMade by `make bench` on %s. Times are milliseconds; only ratios within one run mean anything, for machines differ threefold.\n\n", machine)
	if picture != "." {
		fmt.Fprintf(&w, "![p50 by set and way](%s)\n\n", picture)
	}
	b.found.tellPromises(&w)
	if len(b.found.samples) > 0 {
		b.found.tellRounds(&w, b.sets)
	}
	b.found.tellCrowd(&w)
	b.found.tellThroughput(&w)
	b.found.tellMemory(&w)
	b.found.tellGrowth(&w)
	return w.String()
}

func header(w *strings.Builder, titles ...string) {
	w.WriteString(row(titles...) + "|" + strings.Repeat("---|", len(titles)) + "\n")
}

func (f *findings) tellPromises(w *strings.Builder) {
	w.WriteString("## What is promised\n\n`make bench` fails when one of these is broken. Ratios are of p50 within this run, unless they say otherwise.\n\n")
	header(w, "what", "measured", "promised", "kept")
	for _, p := range f.promises() {
		w.WriteString(p.verdict())
	}
}

func (f *findings) tellRounds(w *strings.Builder, measured []set) {
	w.WriteString("\n## What an agent waits for\n\nFrom the call to the answer; everything in turn, round for round.\n\n")
	w.WriteString(notes)
	header(w, "what", "n", "p50", "p95", "p99", "x floor")
	line := func(what string, t thing) {
		if s := f.samples[t]; len(s) > 0 {
			w.WriteString(row(what, strconv.Itoa(len(s)), ms(s.p50()), ms(s.at(.95)), ms(s.at(.99)), fmt.Sprintf("%.2f", ratio(s.p50(), f.floor(floorOne)))))
		}
	}
	line("floor: create and start a trivial container", thing{"", floorOne})
	line("three trivial containers side by side", thing{"", floorThree})
	line("remove a trivial container by force", thing{"", removal})
	for _, s := range measured {
		for _, way := range slices.Concat(peerNames(), []string{upstream, primed, pooled, hit}) {
			line(s.title()+": "+wayTitle(way), thing{s.name, way})
		}
	}
	line("release of the full set: call to nothing left", thing{"", releaseOf})
}

// notes say what the rows of the rounds mean.
const notes = `- **floor**: over the container engine's API, with the limits that every container here has: 512 MiB, one CPU, 256 processes.
- **replaced protocol**: what this system replaces: command-line docker, engines one after another; for each a look at the image, a
  removal of what may bear the name, a run, and a probe by exec each second. Its probe of mongo, mongosh, is not in the stand-in's
  image; its port is tried instead, which is faster.
- **testcontainers-go**, **dockertest**: the same images and limits, with data in memory; testcontainers' modules with the wait that each
  recommends, dockertest's Retry with a ping. Both start a set's engines side by side, which is their best case. testcontainers' reaper is
  off, which favours it. The stand-in for mongo does not write the line that its module waits for; its port is waited for instead.
- **upstream**: sandboxd with the upstream images (here: their stand-ins, images/README.md), no pool. **primed**: with data directories
  made beforehand, no pool. **pooled**: from a pool that is full. **hit**: a request for what is there. Each over HTTP, one caller.

`

func (f *findings) tellCrowd(w *strings.Builder) {
	c := f.crowd
	if c == nil {
		return
	}
	fmt.Fprintf(w, "\n## Agents at once\n\n%d agents ask for the full set at the same moment; the pool has %d sets ready. The yardstick is plain starts of the"+
		" remaining %d containers: same images, commands and limits, %d at once as in the worker, no question asked of any; the mean of a time before and one after.\n\n", c.agents, c.pooled, c.containers, creates())
	header(w, "agents", "answered", "engines pooled", "created", "p50", "p99", "plain starts", "p99 x plain starts")
	w.WriteString(row(strconv.Itoa(c.agents), strconv.Itoa(c.answered), strconv.Itoa(c.outcomes["pooled"]), strconv.Itoa(c.outcomes["created"]), ms(c.took.p50()), ms(c.took.at(.99)), ms(c.bare), fmt.Sprintf("%.2f", ratio(c.took.at(.99), c.bare))))
	for _, why := range c.failed {
		fmt.Fprintf(w, "\nNot answered: %s\n", why)
	}
}

func (f *findings) tellThroughput(w *strings.Builder) {
	if len(f.hits) == 0 {
		return
	}
	w.WriteString("\n## Hits a second\n\nOne gateway; the container engine is simulated, Redis, workers and every call over HTTP are real. All of it, the callers too, shares this machine's CPUs.\n\n")
	header(w, "workers", "callers", "hits", "a second", "p50", "p99")
	for _, t := range f.hits {
		w.WriteString(row(strconv.Itoa(t.workers), strconv.Itoa(t.callers), strconv.Itoa(t.hits), fmt.Sprintf("%.0f", t.perSecond()), ms(t.took.p50()), ms(t.took.at(.99))))
	}
}

func (f *findings) tellMemory(w *strings.Builder) {
	if len(f.memory) == 0 {
		return
	}
	w.WriteString("\n## Memory of an idle set\n\nAs the container engine counts it: processes, page cache and what lies in tmpfs. The limit is 512 MiB each.\n\n")
	header(w, "engine", "MiB")
	total := int64(0)
	for _, h := range f.memory {
		w.WriteString(row(h.engine, mib(h.bytes)))
		total += h.bytes
	}
	w.WriteString(row("together", mib(total)))
}

func (f *findings) tellGrowth(w *strings.Builder) {
	if len(f.growth) == 0 {
		return
	}
	w.WriteString("\n## With more sandboxes alive\n\nThe sandboxes are of redis alone, in real containers; for hits a second, full sets of the simulated engine. Cold, pooled and release are of redis alone" +
		" too. In Redis lies what this place keeps there. The heap is that of this whole process: gateways, workers and the bench itself.\n\n")
	header(w, "alive", "hit p50", "cold p50", "pooled p50", "release p50", "hits a second", "in Redis, KiB", "heap, MiB")
	for _, g := range f.growth {
		w.WriteString(row(strconv.Itoa(g.alive), known(g.hit), known(g.cold), known(g.pooled), known(g.release), fmt.Sprintf("%.0f", g.perSecond), strconv.FormatInt(g.redis>>10, 10), mib(g.heap)))
	}
}

// known is the p50, or a dash where nothing was measured.
func known(s samples) string {
	if len(s) == 0 {
		return "-"
	}
	return ms(s.p50())
}

func mib(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }
