package ingest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/hubstate/hubstate/devicestate"
)

// Role is the PostgreSQL group role that the ingester's connections must run as.
const Role = "hubstate_ingest"

// SessionSettings are what every connection of the pool given to New must be opened with. They bound how long a stopped
// or unplugged ingester can hold bucket locks, and make COMMIT mean that a crash cannot undo it.
func SessionSettings() map[string]string {
	return map[string]string{
		"synchronous_commit":                  "on",
		"idle_in_transaction_session_timeout": "5s",
		"statement_timeout":                   "10s",
		"tcp_user_timeout":                    "10s",
		"plan_cache_mode":                     "force_generic_plan", // our arrays differ in length only; planning each batch costs more than it finds
		"enable_hashjoin":                     "off",                // one index probe a stream, however small the table looks
		"enable_mergejoin":                    "off",
		"enable_seqscan":                      "off",
		"jit":                                 "off",
	}
}

// Config is how an ingester works. The zero value of a field means its default.
type Config struct {
	Instance string          `koanf:"instance" help:"name of this ingester, the host name when empty; a restart under the same name takes its lanes back at once"`
	MQTTURL  string          `koanf:"mqtt_url" help:"broker of the sessions that name none: mqtt, mqtts, ws or wss"`
	Hub      string          `koanf:"hub" help:"hub of topics that name none"`
	Profiles []string        `koanf:"profiles" help:"device profiles in order of precedence: built-in names or YAML files, comma list"`
	Sessions []SessionConfig `koanf:"sessions" help:"MQTT sessions, one ordered lane each"`

	MQTTUser         string `koanf:"mqtt_user" help:"user name at the broker, unless the URL has one"`
	MQTTPassword     string `koanf:"mqtt_password" secret:"true" help:"password at the broker; better: mqtt_password_file"`
	MQTTPasswordFile string `koanf:"mqtt_password_file" help:"file with the password, read at every connect"`
	MQTTCAFile       string `koanf:"mqtt_ca_file" help:"PEM file of the authorities that may sign the broker's certificate"`
	MQTTCertFile     string `koanf:"mqtt_cert_file" help:"PEM file of the client certificate"`
	MQTTKeyFile      string `koanf:"mqtt_key_file" help:"PEM file of the client certificate's key"`

	BatchReports int           `koanf:"batch_reports" help:"most reports in one transaction, 1..10000"`
	BatchBytes   int           `koanf:"batch_bytes" help:"most bytes in one transaction, at least one report"`
	QueueReports int           `koanf:"queue_reports" help:"most reports waiting per lane; when full the connection is dropped"`
	QueueBytes   int           `koanf:"queue_bytes" help:"most bytes waiting per lane"`
	BrokerWindow int           `koanf:"broker_window" help:"the broker's max_inflight_messages, to tell the throughput bound of a session"`
	IgnoreDrops  bool          `koanf:"ignore_broker_drops" help:"do not watch the broker's own drop counter below $SYS, for brokers that have none"`
	Lease        time.Duration `koanf:"lane_lease" help:"after this a silent owner loses its lane to a standby, 2s..5m"`
	StopTimeout  time.Duration `koanf:"stop_timeout" help:"at a stop, time to commit and acknowledge what was read"`

	PayloadLimit  int `koanf:"payload_limit" help:"bytes of one payload"`
	IDLimit       int `koanf:"id_limit" help:"bytes of one id level of a topic"`
	DepthLimit    int `koanf:"depth_limit" help:"nesting of a payload"`
	ExponentLimit int `koanf:"exponent_limit" help:"magnitude of a number's exponent"`

	RejectsPerDevice int64 `koanf:"rejects_per_device" help:"undecided rejects stored per device; the rest is counted"`
	RejectsTotal     int64 `koanf:"rejects_total" help:"undecided rejects stored in all"`

	OutboxMaxBytes int64         `koanf:"outbox_max_bytes" help:"cap on unpublished bytes in the outbox"`
	OutboxFull     string        `koanf:"outbox_full" help:"above the cap: block (no ack, the broker queues) or latest (state moves, one event per stream afterwards)"`
	OutboxCheck    time.Duration `koanf:"outbox_check" help:"how often the outbox is measured"`

	AllowFsyncOff bool `koanf:"allow_fsync_off" help:"accept a database with fsync=off, which can undo what was published: for tests only"`
}

// SessionConfig is one MQTT session: an ordered lane with a stable client id and filters of its own. Empty connection
// settings are the Config's.
type SessionConfig struct {
	Lane     string   `koanf:"lane"`      // [A-Za-z0-9._:-]{1,64}; unique
	ClientID string   `koanf:"client_id"` // default: the lane
	URL      string   `koanf:"mqtt_url"`
	Filters  []string `koanf:"filters"` // default: all of the profiles
	Hub      string   `koanf:"hub"`
	QoS      *int     `koanf:"qos"`   // subscribed with, 0 or 1; default 1
	Share    string   `koanf:"share"` // group of a shared subscription: order is then kept by counters alone

	User         string `koanf:"mqtt_user"`
	Password     string `koanf:"mqtt_password" secret:"true"`
	PasswordFile string `koanf:"mqtt_password_file"`
	CAFile       string `koanf:"mqtt_ca_file"`
	CertFile     string `koanf:"mqtt_cert_file"`
	KeyFile      string `koanf:"mqtt_key_file"`
}

// RejectCaps bound what ingest_reject may hold of undecided rejects.
type RejectCaps struct{ PerDevice, Total int64 }

// Rejects are the caps for stored rejects.
func (c Config) Rejects() RejectCaps {
	return RejectCaps{PerDevice: c.RejectsPerDevice, Total: c.RejectsTotal}
}

// Limits bound what one report may cost.
func (c Config) Limits() devicestate.Limits {
	return devicestate.Limits{Payload: c.PayloadLimit, IDLevel: c.IDLimit, Depth: c.DepthLimit, Exponent: c.ExponentLimit}
}

// The answers to a full outbox.
const (
	FullBlock  = "block"
	FullLatest = "latest"
)

// DefaultConfig is a Config with every default in place, for flags and `ingest config`.
func DefaultConfig() Config { return Config{}.withDefaults() }

func (c Config) withDefaults() Config {
	def(&c.Hub, "hub")
	def(&c.BatchReports, 1000)
	def(&c.BatchBytes, 4<<20)
	def(&c.QueueReports, 8192)
	def(&c.QueueBytes, 32<<20)
	def(&c.BrokerWindow, 1000)
	def(&c.Lease, 10*time.Second)
	def(&c.StopTimeout, 10*time.Second)
	limits := c.Limits().WithDefaults()
	c.PayloadLimit, c.IDLimit, c.DepthLimit, c.ExponentLimit = limits.Payload, limits.IDLevel, limits.Depth, limits.Exponent
	def(&c.RejectsPerDevice, 100)
	def(&c.RejectsTotal, 10_000)
	def(&c.OutboxMaxBytes, 16<<30)
	def(&c.OutboxFull, FullBlock)
	def(&c.OutboxCheck, 5*time.Second)
	if len(c.Profiles) == 0 {
		c.Profiles = devicestate.BuiltinNames()
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// withSessions fills what a session leaves open; filters are those of the profiles.
func (c Config) withSessions(filters []string) Config {
	sessions := slices.Clone(c.Sessions)
	if len(sessions) == 0 {
		sessions = []SessionConfig{{Lane: "hub-ingest-0"}}
	}
	for i := range sessions {
		s := &sessions[i]
		def(&s.ClientID, s.Lane)
		def(&s.URL, c.MQTTURL)
		def(&s.Hub, c.Hub)
		def(&s.User, c.MQTTUser)
		if s.Password == "" && s.PasswordFile == "" {
			s.Password, s.PasswordFile = c.MQTTPassword, c.MQTTPasswordFile
		}
		def(&s.CAFile, c.MQTTCAFile)
		if s.CertFile == "" {
			s.CertFile, s.KeyFile = c.MQTTCertFile, c.MQTTKeyFile
		}
		if s.QoS == nil {
			one := 1
			s.QoS = &one
		}
		if len(s.Filters) == 0 {
			s.Filters = filters
		}
	}
	c.Sessions = sessions
	return c
}

// Validate returns all Problems joined.
func (c Config) Validate() error { return errors.Join(c.Problems()...) }

// Problems is everything wrong with c and its profiles, each naming field, value and limit. Defaults count as given.
func (c Config) Problems() []error {
	c = c.withDefaults()
	var p problems
	between(&p, "batch_reports", c.BatchReports, 1, 10_000)
	between(&p, "batch_bytes", c.BatchBytes, 64<<10, 64<<20)
	between(&p, "queue_reports", c.QueueReports, 1, 1<<20)
	between(&p, "queue_bytes", c.QueueBytes, 1<<20, 1<<30)
	between(&p, "broker_window", c.BrokerWindow, 1, 65_535)
	between(&p, "lane_lease", c.Lease, 2*time.Second, 5*time.Minute)
	between(&p, "stop_timeout", c.StopTimeout, time.Second, 5*time.Minute)
	between(&p, "payload_limit", c.PayloadLimit, 64, 16<<20)
	between(&p, "id_limit", c.IDLimit, 8, 512)
	between(&p, "depth_limit", c.DepthLimit, 2, 512)
	between(&p, "exponent_limit", c.ExponentLimit, 1, 308)
	between(&p, "rejects_per_device", c.RejectsPerDevice, 1, 1_000_000)
	between(&p, "rejects_total", c.RejectsTotal, 1, 100_000_000)
	between(&p, "outbox_max_bytes", c.OutboxMaxBytes, 1<<20, 1<<50)
	between(&p, "outbox_check", c.OutboxCheck, 100*time.Millisecond, 10*time.Minute)
	if c.OutboxFull != FullBlock && c.OutboxFull != FullLatest {
		p.addf("outbox_full = %q: must be block or latest", c.OutboxFull)
	}
	if c.QueueBytes < c.PayloadLimit {
		p.addf("queue_bytes = %d: must hold at least one payload of payload_limit = %d", c.QueueBytes, c.PayloadLimit)
	}
	c.validateSessions(&p)
	profiles, err := LoadProfiles(c.Profiles)
	if err == nil {
		_, err = devicestate.NewMatcher(profiles, c.Limits())
	}
	return append(p, leaves(err)...)
}

// leaves takes joined errors apart.
func leaves(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, leaves(e)...)
	}
	return all
}

func (c Config) validateSessions(p *problems) {
	lanes := map[string]bool{}
	clients := map[string]bool{}
	for i, s := range c.withSessions([]string{"#"}).Sessions {
		at := fmt.Sprintf("sessions[%d]", i)
		if !validLane(s.Lane) {
			p.addf("%s.lane = %q: must match [A-Za-z0-9._:-]{1,64}", at, s.Lane)
		}
		if lanes[s.Lane] {
			p.addf("%s.lane = %q: stands twice", at, s.Lane)
		}
		if clients[s.URL+" "+s.ClientID] {
			p.addf("%s.client_id = %q: stands twice at one broker, which would end one session for the other", at, s.ClientID)
		}
		lanes[s.Lane], clients[s.URL+" "+s.ClientID] = true, true
		validateURL(p, at, s.URL)
		if *s.QoS != 0 && *s.QoS != 1 {
			p.addf("%s.qos = %d: must be 0 or 1", at, *s.QoS)
		}
		for _, f := range s.Filters {
			if !validFilter(f) {
				p.addf("%s.filters: %q is no MQTT topic filter", at, f)
			}
		}
		if (s.CertFile == "") != (s.KeyFile == "") {
			p.addf("%s: mqtt_cert_file and mqtt_key_file must be given together", at)
		}
	}
}

func validateURL(p *problems, at, text string) {
	if text == "" {
		p.addf("%s.mqtt_url: is required (or mqtt_url for all sessions)", at)
		return
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains([]string{"mqtt", "tcp", "mqtts", "ssl", "ws", "wss"}, u.Scheme) {
		p.addf("%s.mqtt_url: must be a URL such as mqtt://host:1883, with mqtt, mqtts, ws or wss", at)
	}
}

// problems collects everything that is wrong, so that an operator sees all of it at once.
type problems []error

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func between[T int | int64 | time.Duration](p *problems, field string, value, lo, hi T) {
	if value < lo || value > hi {
		p.addf("%s = %v: must be between %v and %v", field, value, lo, hi)
	}
}
