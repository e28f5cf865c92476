package worker

import (
	"strings"

	"github.com/roboco/sandboxd/engines"
	"github.com/roboco/sandboxd/events"
)

// Labels of every container of ours. A container without labelSandbox is never touched.
const (
	labelSandbox = "roboco.sandbox"
	labelOwner   = "roboco.sandbox.owner"
	labelCell    = "roboco.sandbox.cell"
	labelEngine  = "roboco.sandbox.engine"
	labelEpoch   = "roboco.sandbox.epoch"
	labelBorn    = "roboco.sandbox.born"
	labelProject = "roboco.sandbox.project"
	labelTask    = "roboco.sandbox.task"
	labelOwnerID = "roboco.sandbox.owner-id"
	// labelPool marks a container that was born for nobody, and says which pool of its host and engine it waits in.
	labelPool = "roboco.sandbox.pool"
)

// Names of containers.
const (
	agentPrefix   = "roboco-agent-"
	sandboxPrefix = "roboco-sandbox-"
)

func agentName(slug string) string { return agentPrefix + slug }

func containerName(e engines.Engine, slug string) string {
	return sandboxPrefix + e.Short + "-" + slug
}

// ours says that a container carries our label and belongs to this cell; any other one is a stranger.
func (w *Worker) ours(c engines.Container) bool {
	return c.Labels[labelSandbox] == "1" && c.Labels[labelCell] == w.cfg.Cell
}

func (w *Worker) cellLabels() map[string]string {
	return map[string]string{labelSandbox: "1", labelCell: w.cfg.Cell}
}

func (w *Worker) agentLabels(slug string) map[string]string {
	m := w.cellLabels()
	m[labelOwner] = agentName(slug)
	return m
}

// launchLabels are what a container is born with: whose it is, and under which epoch and tenancy it was made.
func (r *run) launchLabels(engine string) map[string]string {
	m := r.w.agentLabels(r.slug)
	m[labelEngine] = engine
	m[labelEpoch] = r.epoch
	m[labelBorn] = r.born
	m[labelProject] = r.seen.Project
	m[labelTask] = r.seen.Task
	m[labelOwnerID] = r.seen.Owner
	r.w.composeLabels(m)
	return m
}

// composeLabels make the container one of the compose project's, so that its `down --remove-orphans` sweeps it.
func (w *Worker) composeLabels(m map[string]string) {
	if p := w.cfg.ComposeProject; p != "" {
		m["com.docker.compose.project"] = p
		m["com.docker.compose.service"] = "sandbox" // not in the file: a real service's name breaks scaling with compose 1.29
		m["com.docker.compose.oneoff"] = "False"
		m["com.docker.compose.config-hash"] = "sandbox"
	}
}

// born describes a container to the bus by the labels it was born with.
func born(c engines.Container) events.Found {
	return events.Found{
		Slug:   strings.TrimPrefix(c.Labels[labelOwner], agentPrefix),
		Engine: c.Labels[labelEngine],
		ID:     c.ID,
		Epoch:  c.Labels[labelEpoch],
		Born:   c.Labels[labelBorn],
		Tenancy: events.Tenancy{
			Task:    c.Labels[labelTask],
			Project: c.Labels[labelProject],
			Owner:   c.Labels[labelOwnerID],
		},
		FirstLife: c.FirstLife, Pooled: pooled(c),
	}
}

// shortID is enough of a container's ID for a name.
func shortID(id string) string { return id[:min(12, len(id))] }
