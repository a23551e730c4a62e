package partitions

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

const (
	// attachAhead is how many partitions after the current one are attached: a writer then never waits for one, and a
	// poll through the parent stays cheap, which it would not be with the whole runway attached.
	attachAhead = 2
	// maxRunwayTables bounds the tables that stand ready; beyond it the runway says nothing that a shorter one does not.
	maxRunwayTables = 2000

	minInterval = time.Minute
	maxInterval = 31 * 24 * time.Hour
)

// identifier is what we are willing to put into DDL and into file names.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// Retention says how long rows of a subject are kept. What a subject is, and what of it is never deleted whatever its
// age (undecided dead letters), is known to the database function retain_rows alone.
type Retention struct {
	Subject string        // as retain_rows knows it, for example "dead" or "rejects"
	Keep    time.Duration // age at which a row is deleted; 0 keeps it for ever
}

// Spec is what an operator wants of the partitions of one parent. The zero value is the default.
type Spec struct {
	// Parent is the partitioned table, by range of created_at, in schema public. Default "outbox".
	Parent string
	// History is the partitioned table that sealed partitions move to. Default Parent + "_sealed".
	History string
	// Position is a bigint column; its least and greatest value identify the rows of an archive. Default "position".
	Position string
	// Interval is the span of one partition, aligned to the UTC epoch: whole minutes from 1 minute to 31 days. Changing
	// it is safe at any time: what is attached stays, what stands ready unused is made anew. Default 1 hour.
	Interval time.Duration
	// Runway is how far ahead tables stand ready, beyond the current one and the next two. Default 48 hours.
	Runway time.Duration
	// KeepAttached is how many ended partitions stay attached although they could be sealed. 0 to 100. Default 0.
	KeepAttached int
	// RetainSent is how long a sealed partition is kept, counted from its end. Default 7 days.
	RetainSent time.Duration
	// Archive says that nothing is dropped before a verified archive of it exists. Default false.
	Archive bool
	// KeepAll says that nothing with rows in it is dropped, which is planned as a wait, and nothing deleted by age. Default
	// false.
	KeepAll bool
	// Settle is how long the server's clock must have run without a jump before anything is sealed, dropped or deleted
	// by age. A stop longer than Settle counts as a jump. Default 15 minutes; NoSettle switches it off.
	Settle time.Duration
	// NoSettle trusts the clock at once, for a maintainer that is started anew for each turn. Default false.
	NoSettle bool
	// Retain lists what else is deleted by age. Default nothing.
	Retain []Retention
}

func (s Spec) withDefaults() Spec {
	s.Parent = or(s.Parent, "outbox")
	s.History = or(s.History, s.Parent+"_sealed")
	s.Position = or(s.Position, "position")
	s.Interval = or(s.Interval, time.Hour)
	s.Runway = or(s.Runway, 48*time.Hour)
	s.RetainSent = or(s.RetainSent, 7*24*time.Hour)
	s.Settle = or(s.Settle, 15*time.Minute)
	if s.NoSettle {
		s.Settle = 0
	}
	return s
}

func or[T comparable](value, standard T) T {
	var zero T
	if value == zero {
		return standard
	}
	return value
}

// Validate returns all problems of s, defaults filled in, joined; each names the field, its value and its limit.
func (s Spec) Validate() error {
	s = s.withDefaults()
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(!identifier.MatchString(s.Parent), "Parent %q: must match %s", s.Parent, identifier)
	refuse(!identifier.MatchString(s.History), "History %q: must match %s", s.History, identifier)
	refuse(!identifier.MatchString(s.Position), "Position %q: must match %s", s.Position, identifier)
	refuse(s.Interval < minInterval || s.Interval > maxInterval || s.Interval%time.Minute != 0,
		"Interval %s: must be whole minutes from %s to %s", s.Interval, minInterval, maxInterval)
	refuse(s.Runway < 0 || s.Interval > 0 && s.Runway/s.Interval > maxRunwayTables,
		"Runway %s: must be 0s to %d intervals (%s)", s.Runway, maxRunwayTables, maxRunwayTables*s.Interval)
	refuse(s.KeepAttached < 0 || s.KeepAttached > 100, "KeepAttached %d: must be 0 to 100", s.KeepAttached)
	refuse(s.RetainSent < 0, "RetainSent %s: must not be negative", s.RetainSent)
	refuse(s.Settle < 0, "Settle %s: must not be negative", s.Settle)
	for _, r := range s.Retain {
		refuse(r.Keep < 0, "Retain %s %s: must not be negative", r.Subject, r.Keep)
	}
	return errors.Join(errs...)
}

// span is a half-open range of created_at, in UTC.
type span struct{ From, To time.Time }

func (r span) covers(t time.Time) bool  { return !t.Before(r.From) && t.Before(r.To) }
func (r span) overlaps(o span) bool     { return r.From.Before(o.To) && o.From.Before(r.To) }
func (r span) equal(o span) bool        { return r.From.Equal(o.From) && r.To.Equal(o.To) }
func (r span) endedAt(t time.Time) bool { return !r.To.After(t) }
func (r span) String() string           { return "[" + stamp(r.From) + ", " + stamp(r.To) + ")" }
func stamp(t time.Time) string          { return t.UTC().Format("2006-01-02 15:04Z") }
func (s Spec) nameOf(r span) string     { return s.Parent + r.From.UTC().Format("_p20060102_1504") }
func later(a, b time.Time) time.Time    { return pick(a, b, a.After(b)) }
func earlier(a, b time.Time) time.Time  { return pick(a, b, a.Before(b)) }
func pick(a, b time.Time, first bool) time.Time {
	if first {
		return a
	}
	return b
}

// slot is the span of the grid that covers t.
func (s Spec) slot(t time.Time) span {
	step := int64(s.Interval / time.Second)
	k := t.Unix() / step
	if t.Unix()%step < 0 {
		k--
	}
	from := time.Unix(k*step, 0).UTC()
	return span{from, from.Add(s.Interval)}
}

// free is the slot of t, cut where a neighbour or the floor reaches into it. No neighbour covers t. The database
// function ensure_partition cuts in the same way; a test compares the two.
func (s Spec) free(t, floor time.Time, neighbours []span) span {
	r := s.slot(t)
	if !floor.After(t) {
		r.From = later(r.From, floor)
	}
	for _, n := range neighbours {
		if n.endedAt(t) {
			r.From = later(r.From, n.To)
		}
		if n.From.After(t) {
			r.To = earlier(r.To, n.From)
		}
	}
	return r
}
