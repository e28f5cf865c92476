package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/roboco/sandboxd/engines"
)

// WaitExit returns when the container is not running any more, with its exit code. One that was never started is not
// running: start first.
func (r *Runtime) WaitExit(ctx context.Context, id string) (int, error) {
	code, err := r.wait(ctx, id, container.WaitConditionNotRunning)
	if err != nil {
		return 0, fmt.Errorf("wait for container %s to exit: %w", id, classify(err))
	}
	return code, nil
}

// wait returns the API client's error as it is. It needs no look at ctx: the client ends both channels with it, and
// to leave earlier would leak its goroutine.
func (r *Runtime) wait(ctx context.Context, id string, until container.WaitCondition) (int, error) {
	exited, failed := r.cli.ContainerWait(ctx, id, until)
	select {
	case e := <-exited:
		if e.Error != nil {
			return 0, errors.New(e.Error.Message)
		}
		return int(e.StatusCode), nil
	case err := <-failed:
		return 0, err
	}
}

// Events calls found for everything of engines.Actions that happens to a container from now on, ours or not, until ctx ends
// or the feed breaks, which is ErrUnavailable. It calls connected once the feed stands: nothing after that is missed while it
// does. Both are called from this goroutine.
func (r *Runtime) Events(ctx context.Context, connected func(), found func(engines.Event)) error {
	feed, err := r.feed(ctx)
	if err != nil {
		return fmt.Errorf("open the container engine's event feed: %w", err)
	}
	defer func() { _ = feed.Close() }() // nothing was written to it
	connected()
	for dec := json.NewDecoder(feed); ; {
		var m events.Message
		if err := dec.Decode(&m); err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("read the container engine's event feed: %w", unavailable(err))
		}
		if action := engines.Action(m.Action); m.Type == events.ContainerEventType && slices.Contains(engines.Actions(), action) {
			found(event(m, action))
		}
	}
}

// feed asks for the events with a request of its own: the API client does not tell when its stream stands.
func (r *Runtime) feed(ctx context.Context) (io.ReadCloser, error) {
	info, err := r.info(ctx)
	if err != nil {
		return nil, err
	}
	wanted := filters.NewArgs(filters.Arg("type", string(events.ContainerEventType)))
	for _, action := range engines.Actions() {
		wanted.Add("event", string(action))
	}
	only, err := filters.ToJSON(wanted)
	if err != nil {
		return nil, fmt.Errorf("write the filter of the event feed: %w", err)
	}
	query := url.Values{"filters": {only}}
	// The engine answers a moment before it subscribes. By its own clock, "since" closes that gap.
	if now, err := time.Parse(time.RFC3339Nano, info.SystemTime); err == nil {
		query.Set("since", fmt.Sprintf("%d.%09d", now.Unix(), now.Nanosecond()))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/v"+r.cli.ClientVersion()+"/events?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the call for the event feed: %w", err)
	}
	resp, err := r.events.Do(req)
	if err != nil {
		return nil, unavailable(err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close() // the status is what is reported
		return nil, unavailable(fmt.Errorf("it answered %s", resp.Status))
	}
	return resp.Body, nil
}

// event reads one event, whose attributes are the container's labels and some of the engine's own among them.
func event(m events.Message, action engines.Action) engines.Event {
	e := engines.Event{Action: action, ID: m.Actor.ID, Name: m.Actor.Attributes["name"], Time: time.Unix(0, m.TimeNano).UTC()}
	e.ExitCode, _ = strconv.Atoi(m.Actor.Attributes["exitCode"]) // 0 when the engine gives none
	e.Labels = maps.Clone(m.Actor.Attributes)
	for _, own := range []string{"name", "oldName", "image", "exitCode", "execDuration", "signal"} {
		delete(e.Labels, own)
	}
	return e
}
