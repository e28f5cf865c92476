package engines

import (
	"context"
	"strings"
	"time"
)

// Engine describes one kind of service. It is a value: it makes no container calls, it only says what a container
// is to be and talks to a server over the wire. Adding one is a file with such a value and a line in Builtin.
type Engine struct {
	// Name is the registry's name, the service's name in requests and the key in evidence: "postgres".
	Name string
	// Short is the engine's part of a container's name: "pg" in roboco-sandbox-pg-{agent}.
	Short string
	// Bare is the image used when no feature is wanted; Feature the one used when any is, empty where there is none.
	Bare, Feature string
	// Port is the TCP port the server listens on inside its container.
	Port int
	// ReadyWithin limits the time from start to the first authenticated query.
	ReadyWithin time.Duration
	// Features is the allowlist, sorted; nothing outside it is ever activated.
	Features []string
	// InPlace says that a feature can be activated in a running server of the feature image.
	InPlace bool
	// FeaturesAlias is a second evidence key for the active features ("available_modules"), or empty.
	FeaturesAlias string
	// User, Database and AuthDatabase are what the agent is given; empty stands for null.
	User, Database, AuthDatabase string

	// Describe says what the container for this order is to be.
	Describe func(Order) Spec
	// Primed is how a slow first start is had in advance; nil where the start is fast anyway.
	Primed *Primed
	// Up reports nil once the final server answers an authenticated query of whoever administers it.
	Up func(context.Context, Access) error
	// Activate makes what the agent is to find (role, database, these features); it is idempotent, and serves to extend.
	Activate func(ctx context.Context, a Access, features []string) error
	// Verify reports an error that names each of these features that is not really active.
	Verify func(ctx context.Context, a Access, features []string) error
	// Probe reports nil when the agent's own login, against the agent's own database, can work.
	Probe func(context.Context, Access) error
	// URL is the connection string of these credentials.
	URL func(Credentials) string
	// Env is what an agent exports (ROBOCO_TEST_*); no value is ever empty.
	Env func(Credentials) map[string]string
}

// Image is the image for these features: any feature means the feature image.
func (e Engine) Image(features []string) string {
	if len(features) > 0 && e.Feature != "" {
		return e.Feature
	}
	return e.Bare
}

// ImageSettings are the environment variables that name the engine's images; feature is empty where there is none.
func (e Engine) ImageSettings() (bare, feature string) {
	name := "ROBOCO_SANDBOX_" + strings.ToUpper(strings.ReplaceAll(e.Name, "-", "_"))
	if e.Feature != "" {
		feature = name + "_FEATURE_IMAGE"
	}
	return name + "_IMAGE", feature
}

// Credentials fills in what the agent is given for a server at this host and port.
func (e Engine) Credentials(host string, port int, password string) Credentials {
	c := Credentials{Host: host, Port: port, User: e.User, Password: password, Database: e.Database, AuthDatabase: e.AuthDatabase}
	c.URL = e.URL(c)
	return c
}

// Order is what a worker wants of an engine for one container.
type Order struct {
	// Image as resolved by Engine.Image.
	Image string
	// Features to have active, sorted.
	Features []string
	// Password is the agent's: 32 hex characters.
	Password string
	// AdminPassword is the superuser's, for engines that have one beside the agent's user; never handed out.
	AdminPassword string
	// Memory is the container's limit in bytes; tmpfs sizes and caches are scaled to it.
	Memory int64
}

// Spec is what a container is to be, as far as the engine knows. No password ever stands in Cmd.
type Spec struct {
	Image      string
	Entrypoint []string
	Cmd        []string
	// Env always has EnvPassword, and EnvAdminPassword where the engine has a superuser.
	Env map[string]string
	// User runs the container's first process; empty is the image's own (whose entrypoint then steps down itself).
	User  string
	Tmpfs []Tmpfs
	// Port is the one port that is exposed.
	Port int
	// Caps are the capabilities kept of those dropped.
	Caps []string
	// Shm is the size of /dev/shm in bytes; 0 leaves the runtime's default.
	Shm int64
}

// Tmpfs is a memory-backed mount. Its pages count toward the container's memory limit.
type Tmpfs struct {
	Path string
	Size int64  // bytes
	Mode string // octal, such as "0700"; empty leaves the runtime's default
	UID  int    // owner; 0 leaves root
	GID  int
}

// Names under which every container is born with its passwords; adoption reads them for every engine.
const (
	EnvPassword      = "ROBOCO_SANDBOX_PASSWORD"       //nolint:gosec // a name, not a password
	EnvAdminPassword = "ROBOCO_SANDBOX_ADMIN_PASSWORD" //nolint:gosec // a name, not a password
)

// Access is how a worker reaches a server: an address to dial and both passwords.
type Access struct {
	Addr          string // host:port
	Password      string
	AdminPassword string
}

// Credentials are what an agent is given for one engine.
type Credentials struct {
	Host         string `json:"host"`
	Port         int    `json:"port"`
	User         string `json:"user"`
	Password     string `json:"password"`
	Database     string `json:"database"`
	AuthDatabase string `json:"auth_database,omitempty"`
	URL          string `json:"url"`
}
