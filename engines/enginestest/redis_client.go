package enginestest

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// redisClient speaks to a redis server.
type redisClient struct{ *redis.Client }

func openRedisURL(ctx context.Context, address string) (Client, error) {
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return openRedis(ctx, o)
}

func openRedisEnv(ctx context.Context, env map[string]string) (Client, error) {
	return openRedis(ctx, &redis.Options{Addr: net.JoinHostPort(env["HOST"], env["PORT"]), Password: env["PASSWORD"]})
}

func openRedis(ctx context.Context, o *redis.Options) (Client, error) {
	c := redis.NewClient(o)
	if err := c.Ping(ctx).Err(); err != nil {
		_ = c.Close()
		return nil, err
	}
	return redisClient{c}, nil
}

func (c redisClient) Write(ctx context.Context, key, value string) error {
	return c.Set(ctx, key, value, 0).Err()
}

func (c redisClient) Read(ctx context.Context, key string) (string, error) {
	return c.Get(ctx, key).Result()
}

func (c redisClient) Fill(ctx context.Context) error {
	filler := strings.Repeat("x", 1<<20)
	for i := range 1024 {
		if err := c.Set(ctx, fmt.Sprint("fill ", i), filler, 0).Err(); err != nil {
			return err
		}
	}
	return errNeverFull
}

func (c redisClient) Drop(ctx context.Context) error {
	names, err := c.Keys(ctx, "fill *").Result()
	if err != nil {
		return err
	}
	return c.Del(ctx, names...).Err()
}

func (c redisClient) Use(ctx context.Context, feature string) error {
	calls, ok := map[string][][]any{
		"bloom":  {{"BF.ADD", "bloom", "x"}, {"BF.EXISTS", "bloom", "x"}},
		"json":   {{"JSON.SET", "json", "$", `{"a":1}`}, {"JSON.GET", "json"}},
		"search": {{"FT._LIST"}},
	}[feature]
	if !ok {
		return unknown(feature)
	}
	for _, call := range calls {
		if err := c.Do(ctx, call...).Err(); err != nil {
			return fmt.Errorf("%v: %w", call, err)
		}
	}
	return nil
}

func (c redisClient) Close(context.Context) { _ = c.Client.Close() }
