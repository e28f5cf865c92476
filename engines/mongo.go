package engines

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	mongoUser     = "sandbox"
	mongoDatabase = "sandbox"
	mongoAuth     = "admin"
)

// Mongo is the mongo engine. It has no features. The agent's user is the server's root user; its database comes into
// being with the first write, as always with this server.
func Mongo() Engine {
	return Engine{
		Name:         "mongo",
		Short:        "mongo",
		Bare:         "mongo:8",
		Port:         27017,
		ReadyWithin:  60 * time.Second,
		Features:     []string{},
		User:         mongoUser,
		Database:     mongoDatabase,
		AuthDatabase: mongoAuth,
		Describe:     describeMongo,
		Up:           probeMongo,
		Activate: func(ctx context.Context, a Access, wanted []string) error {
			if err := onlyAllowed("mongo", nil, wanted); err != nil {
				return err
			}
			return probeMongo(ctx, a)
		},
		Verify: func(_ context.Context, _ Access, wanted []string) error {
			return missing("mongo", "features that are not active", wanted, nil)
		},
		Probe: probeMongo,
		URL: func(c Credentials) string {
			u := url.URL{
				Scheme: "mongodb", User: url.UserPassword(c.User, c.Password), Host: net.JoinHostPort(c.Host, strconv.Itoa(c.Port)),
				Path: "/" + c.Database, RawQuery: url.Values{"authSource": {c.AuthDatabase}}.Encode(),
			}
			return u.String()
		},
		Env: func(c Credentials) map[string]string {
			return withoutEmpty(map[string]string{
				"ROBOCO_TEST_MONGO_HOST":     c.Host,
				"ROBOCO_TEST_MONGO_PORT":     strconv.Itoa(c.Port),
				"ROBOCO_TEST_MONGO_USER":     c.User,
				"ROBOCO_TEST_MONGO_PASSWORD": c.Password,
				"ROBOCO_TEST_MONGO_AUTH_DB":  c.AuthDatabase,
			})
		},
	}
}

func describeMongo(o Order) Spec {
	return Spec{
		Image: o.Image,
		// The journal's preallocated files would fill most of the tmpfs, and the cache is sized for a machine, not for a
		// container whose data is in memory already.
		Cmd: []string{
			"mongod", "--bind_ip_all", "--setParameter", "diagnosticDataCollectionEnabled=false",
			"--wiredTigerEngineConfigString", fmt.Sprintf("cache_size=%dMB,log=(prealloc=false,file_max=10MB)", mib(o.part(3, 16))),
		},
		Env: map[string]string{
			EnvPassword:                  o.Password,
			"MONGO_INITDB_ROOT_USERNAME": mongoUser,
			"MONGO_INITDB_ROOT_PASSWORD": o.Password,
		},
		Tmpfs: []Tmpfs{{Path: "/data/db", Size: o.part(1, 2), Mode: "0700"}},
		Port:  27017,
		Caps:  []string{"CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE", "FOWNER"},
	}
}

// probeMongo reports nil when the agent's user may write. A ping would not do: there are servers that answer it before
// they ask who is there. The write finds nothing to change, so it leaves no trace and works on a full server too.
func probeMongo(ctx context.Context, a Access) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	client, err := mongo.Connect(options.Client().
		SetHosts([]string{a.Addr}).
		SetDirect(true).
		SetAuth(options.Credential{Username: mongoUser, Password: a.Password, AuthSource: mongoAuth}).
		SetDialer(&eagerDialer{fail: fail}).
		SetServerMonitoringMode("poll").
		SetRetryWrites(false).
		SetMaxPoolSize(1))
	if err != nil {
		return a.blank("mongo: connect", err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // a connection that only asked
	_, err = client.Database(mongoDatabase).Collection("sandboxd").
		UpdateOne(ctx, bson.M{"_id": "probe"}, bson.M{"$set": bson.M{"probe": true}})
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx) // what the dialer met, rather than that the probe was ended for it
	}
	return a.blank("mongo: write", err)
}

// eagerDialer ends the probe with the first connection that fails. Left alone, the driver waits half a second before it
// looks at a server again, which is longer than most servers here take to start.
type eagerDialer struct {
	fail context.CancelCauseFunc
}

// DialContext dials once.
func (d *eagerDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		d.fail(err)
		return nil, err
	}
	return &eagerConn{Conn: conn, fail: d.fail}, nil
}

// eagerConn ends the probe when its server hangs up.
type eagerConn struct {
	net.Conn
	fail context.CancelCauseFunc
}

// Read reads, and tells of a failure.
func (c *eagerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.fail(err)
	}
	return n, err
}
