package witness

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

// value is the part of an event's JSON that is looked at.
type value struct {
	MessageID string          `json:"message_id"`
	Device    string          `json:"device_id"`
	Stream    string          `json:"stream"`
	Epoch     int64           `json:"epoch"`
	Sequence  int64           `json:"sequence"`
	Marks     []string        `json:"marks"`
	State     json.RawMessage `json:"state"`
}

// reader turns bytes into events of one ledger.
type reader struct {
	book    *ledger.Ledger
	seed    maphash.Seed
	scratch []byte
}

// newReader makes a reader; two that are to compare hashes share a seed.
func newReader(book *ledger.Ledger, seed maphash.Seed) *reader {
	return &reader{book: book, seed: seed}
}

// event decodes the value of an event; ours is false when it belongs to a device of another fleet.
func (r *reader) event(data []byte) (e oracle.Event, v value, ours bool, err error) {
	if err := json.Unmarshal(data, &v); err != nil {
		return e, v, false, fmt.Errorf("decode event: %w", err)
	}
	e.Stream = r.book.Find(v.Device, v.Stream)
	if e.Stream < 0 {
		return e, v, false, nil
	}
	e.Epoch, e.Sequence = v.Epoch, v.Sequence
	e.Hash = maphash.Bytes(r.seed, data)
	e.Restated = slices.Contains(v.Marks, "restated")
	if e.ID, err = parseID(v.MessageID); err != nil {
		return e, v, true, err
	}
	e.Report, e.Intact = r.state(e.Stream, v.State)
	return e, v, true, nil
}

// state reads which report a state came from, and whether it is that report's state to the byte.
func (r *reader) state(stream int, state []byte) (report uint32, intact bool) {
	report = ledger.NumberIn(state)
	line, ok := r.book.Streams[stream].Report(report)
	if !ok {
		return report, false
	}
	r.scratch = ledger.AppendState(r.scratch[:0], r.book.Seed, stream, report, line.Size)
	return report, bytes.Equal(r.scratch, state)
}

func parseID(s string) (id [16]byte, err error) {
	raw, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(raw) != 16 {
		return id, fmt.Errorf("message id %q is no UUID", s)
	}
	return [16]byte(raw), nil
}
