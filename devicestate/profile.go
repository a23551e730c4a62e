package devicestate

import (
	"errors"
	"fmt"
	"time"
)

// Profile is the mapping of one family of devices: data, never code. It is read from YAML; unknown keys are errors there.
type Profile struct {
	Name    string                  `yaml:"name" json:"name"`
	Topics  []TopicRule             `yaml:"topics" json:"topics"`   // first match wins
	Streams map[string]StreamPolicy `yaml:"streams" json:"streams"` // by stream name; "*" is for the rest
}

// TopicRule turns a topic into ids. Pattern levels are literals, {name} placeholders, + (any one level) or a last # (any rest).
type TopicRule struct {
	Pattern string `yaml:"pattern" json:"pattern"`                   // e.g. uagv/v2/{manufacturer}/{serial}/{stream}
	Device  string `yaml:"device,omitempty" json:"device,omitempty"` // template of the device id; default {device}
	Stream  string `yaml:"stream,omitempty" json:"stream,omitempty"` // template; default {stream}
	Hub     string `yaml:"hub,omitempty" json:"hub,omitempty"`       // template; default {hub} if the pattern has it, else the session's hub
	Ignore  bool   `yaml:"ignore,omitempty" json:"ignore,omitempty"` // matched messages are counted as ignored
}

// CounterMode says whether reports of a stream carry a counter.
type CounterMode string

// The counter modes.
const (
	CounterRequired CounterMode = "required" // default
	CounterOptional CounterMode = "optional" // a report without one is judged as with none
	CounterNone     CounterMode = "none"     // newness is judged by time, content and the lane's tail
)

// Format says how a payload is read.
type Format string

// The payload formats.
const (
	FormatJSON Format = "json" // default: one object
	FormatText Format = "text" // UTF-8 text; the state is {"value":"…"}
)

// Kind selects the rule of a stream.
type Kind string

// The kinds of stream.
const (
	KindState      Kind = "state"      // default: counters decide
	KindConnection Kind = "connection" // last wills and births: arrival order is the truth
)

// OnOld says what becomes of reports that a device buffered while it was offline.
type OnOld string

// The policies for old reports.
const (
	OldOverwrite OnOld = "overwrite" // default: applied as any other
	OldLatest    OnOld = "latest"    // of the old reports of one batch only the last emits; the rest are coalesced
	OldDiscard   OnOld = "discard"   // the counter advances, nothing else
)

// Emit says which applied reports become events.
type Emit string

// The emit policies.
const (
	EmitEvery   Emit = "every"   // default
	EmitChanged Emit = "changed" // content differs (IgnoreFields left out), a reboot, or the heartbeat is due
	EmitNone    Emit = "none"    // the state row moves, no event
)

// Fields are dotted paths into the payload. An empty State means the whole payload without Counter, Boot and Time.
type Fields struct {
	Counter string `yaml:"counter,omitempty" json:"counter,omitempty"`
	Boot    string `yaml:"boot,omitempty" json:"boot,omitempty"`
	Time    string `yaml:"time,omitempty" json:"time,omitempty"`   // RFC 3339, or a number: Unix seconds, ms or µs by magnitude
	State   string `yaml:"state,omitempty" json:"state,omitempty"` // dotted path of the member that is the state
	Trace   string `yaml:"trace,omitempty" json:"trace,omitempty"` // W3C traceparent

	CorrelationID string `yaml:"correlation_id,omitempty" json:"correlation_id,omitempty"`
	CausationID   string `yaml:"causation_id,omitempty" json:"causation_id,omitempty"`
}

// StreamPolicy is how the reports of one stream are read and judged. The zero value means the defaults.
type StreamPolicy struct {
	Ignore  bool        `yaml:"ignore,omitempty" json:"ignore,omitempty"` // counted, acked, not read
	Format  Format      `yaml:"format,omitempty" json:"format,omitempty"` // of the payload
	Kind    Kind        `yaml:"kind,omitempty" json:"kind,omitempty"`
	Fields  Fields      `yaml:"fields,omitempty" json:"fields,omitzero"`
	Counter CounterMode `yaml:"counter,omitempty" json:"counter,omitempty"`

	Modulus         int64         `yaml:"modulus,omitempty" json:"modulus,omitempty"`                   // counter wraps to 0 at it; 0 = never
	BootModulus     int64         `yaml:"boot_modulus,omitempty" json:"boot_modulus,omitempty"`         // boot wraps to 0 at it; 0 = never
	ResetWindow     int64         `yaml:"reset_window,omitempty" json:"reset_window,omitempty"`         // a counter this small may be a restart; default 100
	ResetQuiet      time.Duration `yaml:"reset_quiet,omitempty" json:"reset_quiet,omitempty"`           // silence after which a lower counter is a restart; default 5m
	StragglerWindow time.Duration `yaml:"straggler_window,omitempty" json:"straggler_window,omitempty"` // after a reboot, reports of the boot before may still come; default 60s

	OnOld   OnOld         `yaml:"on_old,omitempty" json:"on_old,omitempty"`
	MaxAge  time.Duration `yaml:"max_age,omitempty" json:"max_age,omitempty"`   // older reports are old; default 10m
	MaxSkew time.Duration `yaml:"max_skew,omitempty" json:"max_skew,omitempty"` // a device clock further ahead is suspect; default 2m

	Emit         Emit          `yaml:"emit,omitempty" json:"emit,omitempty"`
	IgnoreFields []string      `yaml:"ignore_fields,omitempty" json:"ignore_fields,omitempty"` // dotted paths left out of the comparison of `changed`
	Heartbeat    time.Duration `yaml:"heartbeat,omitempty" json:"heartbeat,omitempty"`         // with `changed`, at least one event in this time; default Expect/2
	Drop         []string      `yaml:"drop,omitempty" json:"drop,omitempty"`                   // dotted paths never stored
	Mask         []string      `yaml:"mask,omitempty" json:"mask,omitempty"`                   // dotted paths stored as "***"
	Expect       time.Duration `yaml:"expect,omitempty" json:"expect,omitempty"`               // the stream is silent after this; default 60s

	paths *policyPaths // compiled by NewMatcher
}

// WithDefaults returns p with every zero replaced by its default.
func (p StreamPolicy) WithDefaults() StreamPolicy {
	p.Format = orDefault(p.Format, FormatJSON)
	p.Kind = orDefault(p.Kind, KindState)
	p.Counter = orDefault(p.Counter, CounterRequired)
	p.ResetWindow = orDefault(p.ResetWindow, 100)
	p.ResetQuiet = orDefault(p.ResetQuiet, 5*time.Minute)
	p.StragglerWindow = orDefault(p.StragglerWindow, time.Minute)
	p.OnOld = orDefault(p.OnOld, OldOverwrite)
	p.MaxAge = orDefault(p.MaxAge, 10*time.Minute)
	p.MaxSkew = orDefault(p.MaxSkew, 2*time.Minute)
	p.Emit = orDefault(p.Emit, EmitEvery)
	p.Expect = orDefault(p.Expect, time.Minute)
	if p.Emit == EmitChanged {
		p.Heartbeat = orDefault(p.Heartbeat, p.Expect/2)
	}
	return p
}

// Validate returns all problems joined; field is the prefix that names the policy.
func (p StreamPolicy) Validate(field string) error {
	p = p.WithDefaults()
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.%s: %s", field, name, fmt.Sprintf(format, args...)))
	}
	oneOf(bad, "format", p.Format, FormatJSON, FormatText)
	oneOf(bad, "kind", p.Kind, KindState, KindConnection)
	oneOf(bad, "counter", p.Counter, CounterRequired, CounterOptional, CounterNone)
	oneOf(bad, "on_old", p.OnOld, OldOverwrite, OldLatest, OldDiscard)
	oneOf(bad, "emit", p.Emit, EmitEvery, EmitChanged, EmitNone)
	if p.Counter == CounterRequired && p.Kind == KindState && p.Fields.Counter == "" && !p.Ignore {
		bad("fields.counter", "is required with counter: required")
	}
	if p.Modulus != 0 && p.Modulus < 4 {
		bad("modulus", "%d must be 0 or at least 4", p.Modulus)
	}
	if p.BootModulus != 0 && p.BootModulus < 4 {
		bad("boot_modulus", "%d must be 0 or at least 4", p.BootModulus)
	}
	if p.ResetWindow < 0 {
		bad("reset_window", "%d must not be negative", p.ResetWindow)
	}
	p.validateDurations(bad)
	return errors.Join(errs...)
}

func (p StreamPolicy) validateDurations(bad func(name, format string, args ...any)) {
	for name, d := range map[string]time.Duration{
		"reset_quiet": p.ResetQuiet, "straggler_window": p.StragglerWindow, "max_age": p.MaxAge,
		"max_skew": p.MaxSkew, "heartbeat": p.Heartbeat, "expect": p.Expect,
	} {
		if d < 0 {
			bad(name, "%s must not be negative", d)
		}
	}
	if p.Emit == EmitChanged && p.Heartbeat > p.Expect/2 {
		bad("heartbeat", "%s must be at most half of expect (%s), or the stream looks silent downstream", p.Heartbeat, p.Expect)
	}
}

func oneOf[T ~string](bad func(name, format string, args ...any), name string, got T, allowed ...T) {
	for _, a := range allowed {
		if got == a {
			return
		}
	}
	bad(name, "%q must be one of %v", got, allowed)
}

// Validate returns all problems of the profile joined, each naming its field.
func (p Profile) Validate() error {
	var errs []error
	if p.Name == "" {
		errs = append(errs, errors.New("profile: name must not be empty"))
	}
	if len(p.Topics) == 0 {
		errs = append(errs, fmt.Errorf("profile %s: topics must not be empty", p.Name))
	}
	for name, s := range p.Streams {
		errs = append(errs, s.Validate(fmt.Sprintf("profile %s: streams.%s", p.Name, name)))
	}
	for i, t := range p.Topics {
		if _, err := compileRule(t); err != nil {
			errs = append(errs, fmt.Errorf("profile %s: topics[%d]: %w", p.Name, i, err))
		}
	}
	return errors.Join(errs...)
}
