package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// redisID runs the server, as user and group, by number: not every image with a redis-server has a user of that name.
const redisID = 999

// Redis is the redis engine.
//
// Modules are loaded when the server starts, since servers from 7 on refuse MODULE LOAD; another set of modules means
// another container. Nothing is kept, and what does not fit is refused by the server before its container is full.
func Redis() Engine {
	features := []string{"bloom", "json", "search"}
	return Engine{
		Name:          "redis",
		Short:         "redis",
		Bare:          "redis:8-alpine",
		Feature:       "redis/redis-stack-server:latest",
		Port:          6379,
		ReadyWithin:   15 * time.Second,
		Features:      features,
		FeaturesAlias: "available_modules",
		Describe:      describeRedis,
		Up:            pingRedis,
		Activate: func(ctx context.Context, a Access, wanted []string) error {
			if err := onlyAllowed("redis", features, wanted); err != nil {
				return err
			}
			return pingRedis(ctx, a)
		},
		Verify: verifyRedis,
		Probe:  pingRedis,
		URL: func(c Credentials) string {
			u := url.URL{Scheme: "redis", User: url.UserPassword("", c.Password), Host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), Path: "/0"}
			return u.String()
		},
		Env: func(c Credentials) map[string]string {
			return withoutEmpty(map[string]string{
				"ROBOCO_TEST_REDIS_HOST":     c.Host,
				"ROBOCO_TEST_REDIS_PORT":     strconv.Itoa(c.Port),
				"ROBOCO_TEST_REDIS_PASSWORD": c.Password,
			})
		},
	}
}

// redisModules maps a feature to its file in the feature image and to the name that MODULE LIST reports.
func redisModules() map[string]struct{ file, name string } {
	const lib = "/opt/redis-stack/lib/"
	return map[string]struct{ file, name string }{
		"bloom":  {lib + "redisbloom.so", "bf"},
		"json":   {lib + "rejson.so", "ReJSON"},
		"search": {lib + "redisearch.so", "search"},
	}
}

func describeRedis(o Order) Spec {
	// One value or one client's buffer can be this large at most; the server does not count them toward maxmemory soon
	// enough, so they must fit beside a full server.
	buffer := o.part(1, 16)
	config := []string{
		"requirepass $" + EnvPassword,
		"bind * -::*",
		"dir /data",
		`save ""`,
		"appendonly no",
		fmt.Sprintf("maxmemory %d", o.part(3, 4)),
		"maxmemory-policy noeviction",
		fmt.Sprintf("proto-max-bulk-len %d", buffer),
		fmt.Sprintf("client-query-buffer-limit %d", buffer+1<<20),
		fmt.Sprintf("client-output-buffer-limit normal %d 0 0", buffer+1<<20),
	}
	modules := redisModules()
	for _, f := range o.Features {
		if m, ok := modules[f]; ok {
			config = append(config, "loadmodule "+m.file)
		}
	}
	// The configuration goes in by standard input: the shell puts the password in, and no command line ever has it.
	script := "export PATH=\"$PATH:/opt/redis-stack/bin\"\nexec redis-server - <<END\n" + strings.Join(config, "\n") + "\nEND\n"
	return Spec{
		Image:      o.Image,
		Entrypoint: []string{"sh", "-c", script},
		Env:        map[string]string{EnvPassword: o.Password},
		User:       fmt.Sprintf("%d:%d", redisID, redisID),
		Tmpfs:      []Tmpfs{{Path: "/data", Size: o.part(1, 16), Mode: "0700", UID: redisID, GID: redisID}},
		Port:       6379,
	}
}

// redisDial opens one connection and a client that has nothing else: it fails at once, and whoever probes decides when to
// ask again. The connection is made here, as the client's pool would write of every refusal to its own log.
func redisDial(ctx context.Context, a Access) (*redis.Client, error) {
	conn, err := (&net.Dialer{Timeout: attempt}).DialContext(ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	only := make(chan net.Conn, 1)
	only <- conn
	return redis.NewClient(&redis.Options{
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-only:
				return c, nil
			default:
				return nil, errors.New("the server hung up")
			}
		},
		Addr: a.Addr, Password: a.Password, Protocol: 2, PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		ReadTimeout: attempt, WriteTimeout: attempt, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}), nil
}

func pingRedis(ctx context.Context, a Access) error {
	client, err := redisDial(ctx, a)
	if err != nil {
		return a.blank("redis: connect", err)
	}
	defer client.Close()
	return a.blank("redis: ping", client.Ping(ctx).Err())
}

func verifyRedis(ctx context.Context, a Access, wanted []string) error {
	if len(wanted) == 0 {
		return nil
	}
	client, err := redisDial(ctx, a)
	if err != nil {
		return a.blank("redis: connect", err)
	}
	defer client.Close()
	list, err := client.Do(ctx, "MODULE", "LIST").Slice()
	if err != nil {
		return a.blank("redis: list modules", err)
	}
	loaded, err := moduleNames(list)
	if err != nil {
		return a.blank("redis: list modules", err)
	}
	var present []string
	for feature, m := range redisModules() {
		if loaded[m.name] {
			present = append(present, feature)
		}
	}
	return missing("redis", "modules that are not loaded", wanted, present)
}

// moduleNames reads MODULE LIST: for each module a flat list of names and values.
func moduleNames(list []any) (map[string]bool, error) {
	names := map[string]bool{}
	for _, item := range list {
		pairs, ok := item.([]any)
		if !ok {
			return nil, errors.New("an answer that is not a list of lists")
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if key, value := fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]); key == "name" {
				names[value] = true
			}
		}
	}
	return names, nil
}
