package main

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/roboco/sandboxd/engines"
)

// config is everything the server reads from its environment. A variable that is not set, or is empty, has its
// default. The `about` tag is what README.md says of it; a test holds the two together.
type config struct {
	RedisURL    string `env:"ROBOCO_REDIS_URL" envDefault:"redis://127.0.0.1:6379/0" about:"the bus: redis://[user:password@]host:port/db, or rediss:// for TLS"`
	RedisCA     string `env:"ROBOCO_REDIS_TLS_CA" about:"the file of the authority that a rediss:// server's certificate must come from; unset, the system's trust"`
	RedisCert   string `env:"ROBOCO_REDIS_TLS_CERT" about:"the file of the certificate to show to a rediss:// server; with its key"`
	RedisKey    string `env:"ROBOCO_REDIS_TLS_KEY" about:"the file of that certificate's key"`
	DatabaseURL string `env:"ROBOCO_DATABASE_URL" about:"the durable store: postgres://user:password@host:port/database; required by worker, gateway and migrate"`

	Enabled toggle `env:"ROBOCO_SANDBOX_DB_ENABLED" envDefault:"false" about:"the master switch; a value set at run time wins; it gates requests, never cleaning up"`
	Cell    string `env:"ROBOCO_SANDBOX_CELL" envDefault:"sandbox" about:"one independent system on a container engine and in a Redis; it touches only its own containers"`

	Listen        string  `env:"ROBOCO_SANDBOX_LISTEN" envDefault:"127.0.0.1:8420" about:"where the gateway serves HTTP"`
	TLSCert       string  `env:"ROBOCO_SANDBOX_TLS_CERT" about:"the file of the gateway's certificate: it then serves HTTPS alone; read once, at the start"`
	TLSKey        string  `env:"ROBOCO_SANDBOX_TLS_KEY" about:"the file of that certificate's key"`
	WorkerListen  string  `env:"ROBOCO_SANDBOX_WORKER_LISTEN" envDefault:"127.0.0.1:8421" about:"where a worker serves /healthz, /readyz and /metrics"`
	OperatorToken string  `env:"ROBOCO_SANDBOX_OPERATOR_TOKEN" about:"the bearer token of the first operator; without it nobody can make agents"`
	Rate          float64 `env:"ROBOCO_SANDBOX_RATE" envDefault:"100" about:"calls a second and agent, in bursts of twice that; 0 is no limit"`

	AcceptTimeout time.Duration `env:"ROBOCO_SANDBOX_ACCEPT_TIMEOUT" envDefault:"10s" about:"a request that no worker has accepted or queued by then is refused, to be tried again"`
	TTL           time.Duration `env:"ROBOCO_SANDBOX_TTL" envDefault:"12h" about:"how long credentials live after the last request for them"`
	Owner         string        `env:"ROBOCO_SANDBOX_OWNER" envDefault:"container" about:"container: a sandbox dies with its agent's container; lease: with its time alone, for every agent"`
	Publish       string        `env:"ROBOCO_SANDBOX_PUBLISH" envDefault:"none" about:"none: credentials name the container, for agents on the network; loopback: 127.0.0.1 and a published port, for agents on the host"`

	Network       string `env:"ROBOCO_SANDBOX_NETWORK" envDefault:"roboco_default" about:"the agents' network, on which sandboxes are made"`
	NetworkCreate toggle `env:"ROBOCO_SANDBOX_NETWORK_CREATE" envDefault:"true" about:"false: a network that is absent stops the start, and none is made"`
	Memory        size   `env:"ROBOCO_SANDBOX_MEMORY" envDefault:"512m" about:"the memory limit of each container, no swap beyond it; data and caches scale with it"`
	CPUs          cores  `env:"ROBOCO_SANDBOX_CPUS" envDefault:"1" about:"the processor limit of each container"`
	Pids          int64  `env:"ROBOCO_SANDBOX_PIDS" envDefault:"256" about:"the process limit of each container"`

	JanitorInterval time.Duration `env:"ROBOCO_SANDBOX_JANITOR_INTERVAL" envDefault:"30s" about:"between two passes of the janitor"`
	Grace           time.Duration `env:"ROBOCO_SANDBOX_GRACE" envDefault:"180s" about:"the janitor leaves younger containers alone"`
	Slots           int           `env:"ROBOCO_SANDBOX_SLOTS" envDefault:"32" about:"requests a worker reads and decides at once, and as many provisions besides, at work or in a line"`
	Drain           time.Duration `env:"ROBOCO_SANDBOX_DRAIN" envDefault:"30s" about:"what is under way may take this long after SIGTERM; the rest is handed back"`
	Retain          time.Duration `env:"ROBOCO_SANDBOX_RETAIN" envDefault:"720h" about:"how long the request history is kept"`
	SealKeys        string        `env:"ROBOCO_SANDBOX_SEAL_KEYS" about:"keys that keep credentials unreadable in Redis: name:base64 of 32 bytes, more after commas; the first seals, all open"`
	ComposeProject  string        `env:"ROBOCO_SANDBOX_COMPOSE_PROJECT" about:"the compose project whose labels sandboxes carry, so that its down --remove-orphans sweeps them"`

	Max           int64         `env:"ROBOCO_SANDBOX_MAX" envDefault:"0" about:"most sandboxes at once, over all workers of the cell; past it, a refusal to be tried again; 0 is no limit"`
	AgentRequests int64         `env:"ROBOCO_SANDBOX_AGENT_REQUESTS" envDefault:"64" about:"requests of one agent that may be without an answer at once"`
	MemoryTotal   size          `env:"ROBOCO_SANDBOX_MEMORY_TOTAL" about:"what the memory limits of all sandboxes on a host may come to; unset, the memory that the container engine reports"`
	Creates       int           `env:"ROBOCO_SANDBOX_CREATES" envDefault:"0" about:"containers that a worker creates at once; 0 is twice the processors of the engine's host, and at least 6"`
	Pulls         int           `env:"ROBOCO_SANDBOX_PULLS" envDefault:"3" about:"images that a worker pulls at once"`
	QueueTimeout  time.Duration `env:"ROBOCO_SANDBOX_QUEUE_TIMEOUT" envDefault:"2m" about:"how long a request waits in one line (memory, creates, pulls, a worker with room) before it is refused, to be tried again"`

	Primed string `env:"ROBOCO_SANDBOX_PRIMED" envDefault:"on" about:"on: engines whose first start is slow start from an image derived in the background, with that start already made; off: every start is plain"`

	Pool poolSizes `env:"ROBOCO_SANDBOX_POOL" about:"ready containers that each host keeps for whoever asks next: postgres=2,redis=2,mongo=1; auto for a number lets it follow demand from 1 to 8, auto:2-6 from 2 to 6; unset, none"`

	Audit toggle `env:"ROBOCO_SANDBOX_AUDIT" envDefault:"false" about:"for tests alone: keep every step of the protocol in a Redis stream that is never trimmed"`

	LogLevel  string `env:"ROBOCO_SANDBOX_LOG_LEVEL" envDefault:"info" about:"debug, info, warn or error"`
	LogFormat string `env:"ROBOCO_SANDBOX_LOG_FORMAT" envDefault:"json" about:"json, or console for people"`

	DockerHost    string `env:"DOCKER_HOST" about:"the container engine's address; unset, the docker command's current context, else its usual socket"`
	DockerContext string `env:"DOCKER_CONTEXT" about:"the docker command's context to use when DOCKER_HOST is not set"`
	DockerCerts   string `env:"DOCKER_CERT_PATH" about:"the folder with ca.pem, cert.pem and key.pem for a DOCKER_HOST over TLS"`
	DockerConfig  string `env:"DOCKER_CONFIG" about:"the docker command's configuration folder; unset, ~/.docker"`

	// images holds ROBOCO_SANDBOX_<ENGINE>_IMAGE and _FEATURE_IMAGE, by engine.
	images map[string]imagePair
}

// imagePair is what one engine's images are replaced with; empty leaves the default.
type imagePair struct{ bare, feature string }

// Values of OWNER, PUBLISH and LOG_FORMAT that are asked for in more than one place.
const (
	ownerContainer  = "container"
	ownerLease      = "lease"
	publishNone     = "none"
	publishLoopback = "loopback"
	formatConsole   = "console"
	formatJSON      = "json"
	primedOn        = "on"
	primedOff       = "off"
)

// registry is every built-in engine with the configured images.
func (c config) registry() engines.Registry {
	r := engines.Builtin()
	for name, p := range c.images {
		r = r.WithImages(name, p.bare, p.feature)
	}
	return r
}

// level is the log level; checked when the configuration was read.
func (c config) level() zerolog.Level {
	l, err := zerolog.ParseLevel(c.LogLevel)
	if err != nil {
		return zerolog.InfoLevel
	}
	return l
}
