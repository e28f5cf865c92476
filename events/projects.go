package events

import (
	"context"
	_ "embed"
	"errors"

	"github.com/redis/go-redis/v9"
)

//go:embed announce.lua
var announceLua string

// AnnounceProject tells all workers that a project was written or deleted. The durable store is the truth, and was changed
// before: an announcement that is lost costs them nothing but time. Errors of the connection are ErrUnavailable.
func (b *Bus) AnnounceProject(ctx context.Context, slug string) error {
	_, err := b.number(ctx, "announce that project "+slug+" has changed", b.scripts.announce, append(b.keys("", "", ""), b.projectsKey()), struct {
		Project string `json:"project"`
	}{slug})
	return err
}

// ProjectChanges calls found with the slug of every project that is announced from now on, until ctx ends; it returns nil.
// It calls found with "" once it hears, and again whenever it may have missed some: any project may have changed then. It
// outlives a Redis that is away or was flushed. found is called from this goroutine.
func (b *Bus) ProjectChanges(ctx context.Context, found func(slug string)) error {
	last := ""
	for ctx.Err() == nil {
		if last == "" {
			var err error
			if last, err = b.newest(ctx, b.projectsKey()); err != nil {
				wait(ctx, nil, block/4)
				continue
			}
			found("")
		}
		read, err := b.blocking.XRead(context.WithoutCancel(ctx), &redis.XReadArgs{Streams: []string{b.projectsKey(), last}, Count: 100, Block: block}).Result()
		switch {
		case errors.Is(err, redis.Nil):
			if now, err := b.newest(ctx, b.projectsKey()); err == nil && earlier(now, last) {
				last = "" // the stream was lost, and what stood in it unread
			}
		case err != nil:
			b.cfg.Log.Debug().Err(err).Msg("cannot read which projects change")
			last = ""
			wait(ctx, nil, block/4)
		default:
			for _, m := range read[0].Messages {
				last = m.ID
				found(text(m, "project"))
			}
		}
	}
	return nil
}
