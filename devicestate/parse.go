package devicestate

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Parser reads payloads. It reuses its buffers: not safe for concurrent use; the zero value uses the default limits.
type Parser struct {
	Limits Limits
	doc    document
}

// maxIDText bounds correlation ids and traceparents: they become headers of every event.
const maxIDText = 256

// policyPaths is a StreamPolicy's dotted paths, split once.
type policyPaths struct {
	counter, boot, time, state, trace, correlation, causation []string
	filter                                                    []pathFilter // what the stored state leaves out or masks
	ignore                                                    []pathFilter // what the comparison of `changed` leaves out
}

type pathFilter struct {
	path []string
	mask bool
}

func compilePaths(p *StreamPolicy) *policyPaths {
	f := p.Fields
	c := &policyPaths{
		counter: splitPath(f.Counter), boot: splitPath(f.Boot), time: splitPath(f.Time), state: splitPath(f.State),
		trace: splitPath(f.Trace), correlation: splitPath(f.CorrelationID), causation: splitPath(f.CausationID),
	}
	if f.State == "" {
		for _, own := range [][]string{c.counter, c.boot, c.time} {
			if own != nil {
				c.filter = append(c.filter, pathFilter{path: own})
			}
		}
	}
	for _, d := range p.Drop {
		c.filter = append(c.filter, pathFilter{path: splitPath(d)})
	}
	for _, m := range p.Mask {
		c.filter = append(c.filter, pathFilter{path: splitPath(m), mask: true})
	}
	for _, i := range p.IgnoreFields {
		c.ignore = append(c.ignore, pathFilter{path: splitPath(i)})
	}
	return c
}

func splitPath(p string) []string {
	if p == "" {
		return nil
	}
	return strings.Split(p, ".")
}

// Parse reads payload as route says. The returned report may share memory with payload: the caller must not change it
// afterwards. ReceivedAt, Retained and Redelivered are the caller's to set. The error is a *Reject.
func (p *Parser) Parse(route *Route, payload []byte) (Report, error) {
	r := Report{Device: route.Device, Stream: route.Stream, Hub: route.Hub}
	lim := p.Limits.WithDefaults()
	if len(payload) > lim.Payload {
		return r, reject(ReasonTooLarge, "", "payload of %d bytes, limit %d", len(payload), lim.Payload)
	}
	if route.Policy.Format == FormatText {
		return parseText(r, payload)
	}
	if len(bytes.TrimSpace(payload)) == 0 {
		return r, reject(ReasonEmpty, "", "payload of %d bytes without a value", len(payload))
	}
	if err := scan(&p.doc, payload, lim); err != nil {
		return r, err
	}
	if p.doc.values[0].kind != '{' {
		return r, reject(ReasonNotObject, "", "the payload is JSON, but not an object")
	}
	return p.extract(r, route.Policy)
}

func parseText(r Report, payload []byte) (Report, error) {
	if len(payload) == 0 {
		return r, reject(ReasonEmpty, "", "payload of 0 bytes")
	}
	if !utf8.Valid(payload) {
		return r, reject(ReasonInvalidUTF8, "", "text payload")
	}
	if bytes.IndexByte(payload, 0) >= 0 {
		return r, reject(ReasonNullCharacter, "", "text payload")
	}
	r.State = append(appendString([]byte(`{"value":`), string(payload)), '}')
	r.Hash = HashOf(r.State)
	r.EmitHash = r.Hash
	return r, nil
}

func (p *Parser) extract(r Report, policy *StreamPolicy) (Report, error) {
	paths := policy.paths
	if paths == nil {
		paths = compilePaths(policy)
	}
	if err := p.readNumbers(&r, policy, paths); err != nil {
		return r, err
	}
	p.readTime(&r, paths.time)
	r.Traceparent = p.readID(paths.trace)
	r.CorrelationID = p.readID(paths.correlation)
	r.CausationID = p.readID(paths.causation)
	return p.readState(r, policy, paths)
}

func (p *Parser) readNumbers(r *Report, policy *StreamPolicy, paths *policyPaths) error {
	if policy.Counter != CounterNone && paths.counter != nil {
		n, err := p.integer(paths.counter, ReasonCounterInvalid)
		if err != nil {
			return err
		}
		r.Counter = n
	}
	if policy.Counter == CounterRequired && policy.Kind != KindConnection && !r.Counter.OK {
		return reject(ReasonCounterMissing, policy.Fields.Counter, "required, but absent or null")
	}
	if paths.boot == nil {
		return nil
	}
	n, err := p.integer(paths.boot, ReasonBootInvalid)
	if err != nil {
		return err
	}
	r.Boot = n
	return nil
}

// integer reads a whole number in 0..2^63-1; absent and null are no number.
func (p *Parser) integer(path []string, reason Reason) (Number, error) {
	i := p.doc.find(path)
	if i < 0 || p.doc.values[i].kind == 'n' {
		return Number{}, nil
	}
	if p.doc.values[i].kind != '0' {
		return Number{}, reject(reason, strings.Join(path, "."), "is no number")
	}
	n, err := strconv.ParseInt(string(p.doc.text(i)), 10, 64)
	if err != nil || n < 0 || p.doc.text(i)[0] == '-' {
		return Number{}, reject(reason, strings.Join(path, "."), "must be a whole number in 0..9223372036854775807")
	}
	return Some(n), nil
}

func (p *Parser) readID(path []string) string {
	if path == nil {
		return ""
	}
	s, ok := p.doc.str(p.doc.find(path))
	if !ok || len(s) > maxIDText {
		return ""
	}
	return s
}

func (p *Parser) readTime(r *Report, path []string) {
	if path == nil {
		return
	}
	i := p.doc.find(path)
	if i < 0 || p.doc.values[i].kind == 'n' {
		return
	}
	t, ok := p.instant(i)
	r.Time, r.BadTime = t, !ok
}

// instant reads a device time, cut to the microseconds that PostgreSQL keeps: a finer one would be newer than its own
// stored self, and every redelivery of it a reboot.
func (p *Parser) instant(i int) (time.Time, bool) {
	if s, ok := p.doc.str(i); ok {
		t, err := time.Parse(time.RFC3339Nano, s)
		return t.UTC().Truncate(time.Microsecond), err == nil
	}
	if p.doc.values[i].kind != '0' {
		return time.Time{}, false
	}
	f, err := strconv.ParseFloat(string(p.doc.text(i)), 64)
	if err != nil {
		return time.Time{}, false
	}
	return unixByMagnitude(f)
}

// unixByMagnitude reads seconds, milliseconds or microseconds since 1970: the three ranges cannot meet before year 5000.
func unixByMagnitude(f float64) (time.Time, bool) {
	switch {
	case f < 0 || f >= 1e17:
		return time.Time{}, false
	case f < 1e11:
		return time.UnixMicro(int64(f * 1e6)).UTC(), true
	case f < 1e14:
		return time.UnixMicro(int64(f * 1e3)).UTC(), true
	}
	return time.UnixMicro(int64(f)).UTC(), true
}

func (p *Parser) readState(r Report, policy *StreamPolicy, paths *policyPaths) (Report, error) {
	root := p.doc.find(paths.state)
	if root < 0 || (paths.state != nil && p.doc.values[root].kind == 'n') {
		return r, reject(ReasonStateMissing, policy.Fields.State, "absent or null")
	}
	r.State = p.doc.render(root, paths.filter)
	r.Hash = HashOf(r.State)
	r.EmitHash = r.Hash
	if len(paths.ignore) > 0 {
		r.EmitHash = p.emitHash(root, paths)
	}
	return r, nil
}

func (p *Parser) emitHash(root int, paths *policyPaths) Hash {
	filters := slices.Concat(paths.filter, paths.ignore)
	return HashOf(p.doc.render(root, filters))
}
