package monitor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hubstate/hubstate/devicestate"
)

// Row is one device in a list.
type Row struct {
	Device       string    `json:"device"`
	Hub          string    `json:"hub"`
	Status       Status    `json:"status"`
	LiveAt       time.Time `json:"live_at,omitzero"`
	DueAt        time.Time `json:"due_at,omitzero"`
	Link         Link      `json:"link,omitempty"`
	ClockSuspect bool      `json:"clock_suspect"`
	Missed       int64     `json:"missed"`
}

// Filter selects the devices of a hub's list.
type Filter string

// The filters. All but FilterGaps list the most urgent device first.
const (
	FilterAll       Filter = "all"
	FilterSilent    Filter = "silent" // also the connected ones
	FilterConnected Filter = "connected_silent"
	FilterNever     Filter = "never_seen"
	FilterClock     Filter = "clock_suspect"
	FilterGaps      Filter = "gaps" // most missed reports first
)

// Filters lists every filter.
func Filters() []Filter {
	return []Filter{FilterAll, FilterSilent, FilterConnected, FilterNever, FilterClock, FilterGaps}
}

// Page is a part of a list: Limit rows from Offset.
type Page struct{ Offset, Limit int64 }

// Devices lists devices of a hub.
func (v *View) Devices(ctx context.Context, hub string, f Filter, page Page, q Question) ([]Row, error) {
	ids, err := v.ids(ctx, hub, f, page, q)
	if err != nil {
		return nil, fmt.Errorf("list devices of %s: %w", hub, err)
	}
	return v.Rows(ctx, ids, q)
}

func (v *View) ids(ctx context.Context, hub string, f Filter, page Page, q Question) ([]string, error) {
	asOf := strconv.FormatInt(millis(q.AsOf), 10)
	by := func(set, from, to string) ([]string, error) {
		return v.rdb.ZRangeByScore(ctx, v.key(set, hub), &redis.ZRangeBy{Min: from, Max: to, Offset: page.Offset, Count: page.Limit}).Result()
	}
	switch f {
	case FilterSilent:
		return by("due:", "(0", asOf)
	case FilterConnected:
		return by("up:", "(0", asOf)
	case FilterNever:
		return by("due:", "0", "0")
	case FilterClock:
		return by("clock:", "-inf", "+inf")
	case FilterGaps:
		return v.rdb.ZRevRange(ctx, v.key("gaps:", hub), page.Offset, page.Offset+page.Limit-1).Result()
	}
	return by("due:", "-inf", "+inf")
}

// Rows reads the rows of the named devices, in one round trip; unknown ones are left out.
func (v *View) Rows(ctx context.Context, ids []string, q Question) ([]Row, error) {
	if len(ids) == 0 {
		return []Row{}, nil
	}
	pipe := v.rdb.Pipeline()
	fields := make([]*redis.SliceCmd, len(ids))
	missed := make([]*redis.FloatCmd, len(ids))
	for i, id := range ids {
		fields[i] = pipe.HMGet(ctx, v.key("d:", id), "hub", "live", "dues", "link", "suspects")
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read devices: %w", err)
	}
	rows := make([]Row, 0, len(ids))
	for i, id := range ids {
		f := texts(fields[i].Val())
		if f[0] == "" {
			continue
		}
		missed[len(rows)] = pipe.ZScore(ctx, v.key("gaps:", f[0]), id)
		rows = append(rows, row(id, f, q))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read gaps: %w", err)
	}
	for i := range rows {
		rows[i].Missed = int64(missed[i].Val())
	}
	return rows, nil
}

// row judges with the very rules the counts are made with. f is hub, live, dues, link, suspects.
func row(id string, f []string, q Question) Row {
	r := Row{Device: id, Hub: f[0], LiveAt: fromMillis(f[1]), DueAt: earliestDue(f[2]), Link: Link(f[3]), ClockSuspect: f[4] != ""}
	r.Status = Judge(r.DueAt, r.Link, q.AsOf, q.Now)
	return r
}

// earliestDue reads "stream=ms;stream=ms;".
func earliestDue(dues string) time.Time {
	var first time.Time
	for part := range strings.SplitSeq(dues, ";") {
		_, ms, ok := strings.Cut(part, "=")
		if at := fromMillis(ms); ok && !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

func texts(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i], _ = v.(string)
	}
	return out
}

// searchScan is how many names one step of a search looks at.
const searchScan = 5000

// Search finds up to limit devices whose id contains text, those that begin with it first. Upper and lower case differ
// in ids, so they do here.
func (v *View) Search(ctx context.Context, text string, limit int) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	names := v.key("names")
	found, err := v.rdb.ZRangeByLex(ctx, names, &redis.ZRangeBy{Min: "[" + text, Max: "[" + text + "\xff", Count: int64(limit)}).Result()
	if err != nil {
		return nil, fmt.Errorf("search devices: %w", err)
	}
	var cursor uint64
	for len(found) < limit {
		pairs, next, err := v.rdb.ZScan(ctx, names, cursor, "*"+globEscape(text)+"*", searchScan).Result()
		if err != nil {
			return nil, fmt.Errorf("search devices: %w", err)
		}
		for i := 0; i+1 < len(pairs) && len(found) < limit; i += 2 { // names and scores in turn
			if !slices.Contains(found, pairs[i]) {
				found = append(found, pairs[i])
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return found, nil
}

func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// Device is everything the view knows of one device.
type Device struct {
	Row
	Streams  []Stream `json:"streams"`
	Timeline []Note   `json:"timeline"` // newest first
}

// Stream is the last event of one stream of a device.
type Stream struct {
	Stream       string          `json:"stream"`
	Status       Status          `json:"status,omitempty"` // absent when nothing is expected of it
	Epoch        int64           `json:"epoch"`
	Sequence     int64           `json:"sequence"`
	Counter      *int64          `json:"counter"`
	Boot         *int64          `json:"boot"`
	LiveAt       time.Time       `json:"live_at,omitzero"`
	ExpectMs     int64           `json:"expect_ms"`
	ClockSuspect bool            `json:"clock_suspect"`
	Marks        string          `json:"marks"`
	Missed       int64           `json:"missed"`
	Late         int64           `json:"late"`
	Duplicate    int64           `json:"duplicate"`
	Quarantined  int64           `json:"quarantined"`
	Occurred     time.Time       `json:"occurred_at,omitzero"`
	Received     time.Time       `json:"received_at,omitzero"`
	Committed    time.Time       `json:"committed_at,omitzero"`
	Published    time.Time       `json:"published_at,omitzero"`
	Applied      time.Time       `json:"applied_at,omitzero"`
	MessageID    string          `json:"message_id"`
	State        json.RawMessage `json:"state"`
}

// Note is one notable thing on a device's timeline: reboot, wrap, clock_suspect, clock_right, retained, restated, connected, disconnected, missed 3, late 1,
// lost 41-57. SeenAt is when this view learnt of it, LiveAt the last sign of life by then.
type Note struct {
	SeenAt   time.Time `json:"seen_at,omitzero"`
	LiveAt   time.Time `json:"live_at,omitzero"`
	Stream   string    `json:"stream"`
	Epoch    int64     `json:"epoch"`
	Sequence int64     `json:"sequence"`
	What     []string  `json:"what"`
}

// Device reads one device; ok is false when the view does not know it.
func (v *View) Device(ctx context.Context, id string, q Question) (d Device, ok bool, err error) {
	rows, err := v.Rows(ctx, []string{id}, q)
	if err != nil || len(rows) == 0 {
		return Device{}, false, err
	}
	pipe := v.rdb.Pipeline()
	hash := pipe.HGetAll(ctx, v.key("d:", id))
	notes := pipe.LRange(ctx, v.key("t:", id), 0, -1)
	if _, err := pipe.Exec(ctx); err != nil {
		return Device{}, false, fmt.Errorf("read device: %w", err)
	}
	d = Device{Row: rows[0], Streams: []Stream{}, Timeline: timeline(notes.Val())}
	for field, numbers := range hash.Val() {
		if name, isStream := strings.CutPrefix(field, "p:"); isStream {
			d.Streams = append(d.Streams, readStream(name, numbers, hash.Val(), q))
		}
	}
	slices.SortFunc(d.Streams, func(a, b Stream) int { return strings.Compare(a.Stream, b.Stream) })
	return d, true, nil
}

// readStream reads the numbers that view.lua wrote and the event beside them.
func readStream(name, numbers string, hash map[string]string, q Question) Stream {
	position, rest, _ := strings.Cut(numbers, ":")
	at := parsePosition(position)
	n := strings.Split(rest, ":")
	for len(n) < 9 {
		n = append(n, "")
	}
	i := parseInstants(hash["t:"+name])
	s := Stream{
		Stream: name, Epoch: at.Epoch, Sequence: at.Sequence, LiveAt: fromMillis(n[0]), ExpectMs: parseInt(n[1]),
		ClockSuspect: n[3] == "1", Missed: parseInt(n[5]), Late: parseInt(n[6]), Duplicate: parseInt(n[7]), Quarantined: parseInt(n[8]),
		Occurred: i.Occurred, Received: i.Received, Committed: i.Committed, Published: i.Published, Applied: i.Applied,
	}
	if s.ExpectMs > 0 {
		due := Due([]Sign{{LiveAt: s.LiveAt, Expect: time.Duration(s.ExpectMs) * time.Millisecond}})
		s.Status = Judge(due, Link(hash["link"]), q.AsOf, q.Now)
	}
	s.readEvent([]byte(hash["v:"+name]))
	return s
}

func (s *Stream) readEvent(value []byte) {
	e, err := devicestate.DecodeEvent(value)
	if err != nil {
		s.State = json.RawMessage("null")
		return
	}
	s.MessageID, s.State, s.Marks = string(devicestate.AppendUUID(nil, e.MessageID)), e.State, e.Marks.String()
	s.Counter, s.Boot = optional(e.Counter), optional(e.Boot)
}

func optional(n devicestate.Number) *int64 {
	if !n.OK {
		return nil
	}
	return &n.V
}

// timeline reads now|live|stream|position|notes, newest last, and returns newest first.
func timeline(lines []string) []Note {
	notes := make([]Note, 0, len(lines))
	for _, line := range slices.Backward(lines) {
		f := strings.SplitN(line, "|", 5)
		if len(f) < 5 {
			continue
		}
		at := parsePosition(f[3])
		notes = append(notes, Note{
			SeenAt: fromMillis(f[0]), LiveAt: fromMillis(f[1]), Stream: f[2], Epoch: at.Epoch, Sequence: at.Sequence,
			What: strings.Split(f[4], ","),
		})
	}
	return notes
}

// Loss is a hole in the sequence that nothing explains: events that were committed and never came out of the topic.
type Loss struct {
	Hub    string    `json:"hub"`
	Device string    `json:"device"`
	Stream string    `json:"stream"`
	Epoch  int64     `json:"epoch"`
	Range  string    `json:"range"` // 41-57
	SeenAt time.Time `json:"seen_at"`
}

// Losses lists the newest holes.
func (v *View) Losses(ctx context.Context, limit int64) ([]Loss, error) {
	raw, err := v.rdb.ZRevRangeWithScores(ctx, v.key("loss"), 0, limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list losses: %w", err)
	}
	losses := make([]Loss, 0, len(raw))
	for _, z := range raw {
		member, _ := z.Member.(string)
		if f := strings.Split(member, "|"); len(f) == 5 {
			losses = append(losses, Loss{Hub: f[0], Device: f[1], Stream: f[2], Epoch: parseInt(f[3]), Range: f[4], SeenAt: fromScore(z.Score)})
		}
	}
	return losses, nil
}
