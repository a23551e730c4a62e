package devicestate

import (
	"errors"
	"fmt"
	"strings"
)

// Route is what a topic says about the messages on it. It is immutable and shared: do not modify Policy.
type Route struct {
	Device  string
	Stream  string
	Hub     string
	Profile string
	Ignore  bool
	Policy  *StreamPolicy // with defaults; nil when Ignore
}

// Matcher finds the route of a topic. It is immutable and safe for concurrent use.
type Matcher struct {
	rules  []compiledRule
	limits Limits
}

type compiledRule struct {
	profile             string
	levels              []level
	rest                bool // the pattern ends in #
	device, stream, hub template
	ignore              bool
	streams             map[string]*StreamPolicy
}

type level struct {
	literal string
	name    string // placeholder; empty for a literal
	any     bool   // +
}

// template is a list of literals and placeholder names, alternating, beginning with a literal.
type template []string

// NewMatcher compiles profiles in order of precedence. The error joins all problems of all profiles.
func NewMatcher(profiles []Profile, limits Limits) (*Matcher, error) {
	m := &Matcher{limits: limits.WithDefaults()}
	var errs []error
	for _, p := range profiles {
		if err := p.Validate(); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, m.add(p))
	}
	return m, errors.Join(errs...)
}

func (m *Matcher) add(p Profile) error {
	streams := make(map[string]*StreamPolicy, len(p.Streams))
	for name, s := range p.Streams {
		s = s.WithDefaults()
		s.paths = compilePaths(&s)
		streams[name] = &s
	}
	for _, t := range p.Topics {
		r, err := compileRule(t)
		if err != nil {
			return err
		}
		r.profile, r.streams = p.Name, streams
		m.rules = append(m.rules, r)
	}
	return nil
}

// Match returns the route of topic. sessionHub names the hub where the topic does not. The error is a *Reject.
func (m *Matcher) Match(topic, sessionHub string) (Route, error) {
	var buf [16]string
	levels := splitLevels(buf[:0], topic)
	for i := range m.rules {
		r := &m.rules[i]
		if r.matches(levels) {
			return r.route(levels, sessionHub, m.limits)
		}
	}
	return Route{}, reject(ReasonNoProfile, "topic", "no topic rule matches its %d levels", len(levels))
}

func splitLevels(dst []string, topic string) []string {
	for {
		i := strings.IndexByte(topic, '/')
		if i < 0 {
			return append(dst, topic)
		}
		dst, topic = append(dst, topic[:i]), topic[i+1:]
	}
}

func (r *compiledRule) matches(levels []string) bool {
	if len(levels) < len(r.levels) || (len(levels) > len(r.levels) && !r.rest) {
		return false
	}
	for i, l := range r.levels {
		if l.literal != "" && l.literal != levels[i] {
			return false
		}
	}
	return true
}

func (r *compiledRule) route(levels []string, sessionHub string, lim Limits) (Route, error) {
	if r.ignore {
		return Route{Profile: r.profile, Ignore: true}, nil
	}
	for i, l := range r.levels {
		if l.name == "" {
			continue
		}
		if err := checkID(l.name, levels[i], lim.IDLevel); err != nil {
			return Route{}, err
		}
	}
	out := Route{Profile: r.profile, Device: r.fill(r.device, levels), Stream: r.fill(r.stream, levels), Hub: sessionHub}
	if len(r.hub) > 0 {
		out.Hub = r.fill(r.hub, levels)
	}
	if out.Hub == "" {
		return Route{}, reject(ReasonBadID, "hub", "neither the topic nor the session names a hub")
	}
	return r.withPolicy(out)
}

func (r *compiledRule) withPolicy(out Route) (Route, error) {
	p, ok := r.streams[out.Stream]
	if !ok {
		p, ok = r.streams["*"]
	}
	if !ok {
		return Route{}, reject(ReasonUnknownStream, "stream", "profile %s has no policy for this stream", r.profile)
	}
	out.Ignore, out.Policy = p.Ignore, p
	return out, nil
}

func (r *compiledRule) fill(t template, levels []string) string {
	if len(t) == 2 && t[0] == "" {
		return r.value(t[1], levels)
	}
	var b strings.Builder
	for i, part := range t {
		if i%2 == 1 {
			part = r.value(part, levels)
		}
		b.WriteString(part)
	}
	return b.String()
}

func (r *compiledRule) value(name string, levels []string) string {
	for i, l := range r.levels {
		if l.name == name {
			return levels[i]
		}
	}
	return ""
}

// checkID admits [A-Za-z0-9._:-]{1,max}: what every part, from MQTT to a URL, can carry unescaped.
func checkID(field, id string, maxLen int) error {
	if id == "" || len(id) > maxLen {
		return reject(ReasonBadID, field, "length %d, must be 1..%d bytes", len(id), maxLen)
	}
	for i := range len(id) {
		if !isIDByte(id[i]) {
			return reject(ReasonBadID, field, "byte 0x%02x at %d, must match [A-Za-z0-9._:-]", id[i], i)
		}
	}
	return nil
}

func isIDByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == ':' || c == '-'
}

func compileRule(t TopicRule) (compiledRule, error) {
	r := compiledRule{ignore: t.Ignore}
	if err := r.compileLevels(t.Pattern); err != nil {
		return r, err
	}
	if t.Ignore {
		return r, nil
	}
	var errs [3]error
	r.device, errs[0] = r.compileTemplate("device", orDefault(t.Device, "{device}"))
	r.stream, errs[1] = r.compileTemplate("stream", orDefault(t.Stream, "{stream}"))
	if t.Hub != "" || r.has("hub") {
		r.hub, errs[2] = r.compileTemplate("hub", orDefault(t.Hub, "{hub}"))
	}
	return r, errors.Join(errs[:]...)
}

func (r *compiledRule) compileLevels(pattern string) error {
	parts := strings.Split(pattern, "/")
	for i, p := range parts {
		switch {
		case p == "#" && i == len(parts)-1:
			r.rest = true
		case p == "+":
			r.levels = append(r.levels, level{any: true})
		case strings.HasPrefix(p, "{") && strings.HasSuffix(p, "}") && len(p) > 2:
			if r.has(p[1 : len(p)-1]) {
				return fmt.Errorf("pattern %q: placeholder %s stands twice", pattern, p)
			}
			r.levels = append(r.levels, level{name: p[1 : len(p)-1]})
		case p == "" || strings.ContainsAny(p, "{}+#"):
			return fmt.Errorf("pattern %q: level %d must be a literal, {name}, + or a last #", pattern, i)
		default:
			r.levels = append(r.levels, level{literal: p})
		}
	}
	return nil
}

func (r *compiledRule) has(name string) bool {
	for _, l := range r.levels {
		if l.name == name {
			return true
		}
	}
	return false
}

func (r *compiledRule) compileTemplate(field, text string) (template, error) {
	var t template
	for {
		open := strings.IndexByte(text, '{')
		if open < 0 {
			return append(t, text), nil
		}
		size := strings.IndexByte(text[open:], '}')
		if size < 0 {
			return nil, fmt.Errorf("%s %q: unclosed {", field, text)
		}
		name := text[open+1 : open+size]
		if !r.has(name) {
			return nil, fmt.Errorf("%s: the pattern has no placeholder {%s}", field, name)
		}
		t, text = append(t, text[:open], name), text[open+size+1:]
		if text == "" {
			return t, nil
		}
	}
}

// Filter is the MQTT topic filter that subscribes to all topics of the rule.
func (t TopicRule) Filter() string {
	parts := strings.Split(t.Pattern, "/")
	for i, p := range parts {
		if strings.HasPrefix(p, "{") {
			parts[i] = "+"
		}
	}
	return strings.Join(parts, "/")
}
