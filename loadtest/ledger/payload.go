package ledger

import (
	"bytes"
	"strconv"
	"time"
)

// padding is what states are filled up with; cut at a place that depends on the report, so that neighbours differ.
const padding = "warm cold open shut idle busy full void left right north south early late amber green blue "

// AppendTopic appends the topic of s in the hubstate profile.
func AppendTopic(dst []byte, s *Stream) []byte {
	dst = append(append(dst, "hubs/"...), s.Hub...)
	dst = append(append(dst, "/devices/"...), s.Device...)
	return append(append(dst, '/'), s.Name...)
}

// AppendState appends the state of report number of stream, which is a function of its arguments alone: the checker
// writes it again instead of remembering it.
func AppendState(dst []byte, seed uint64, stream int, number uint32, size uint16) []byte {
	mix := (seed+uint64(stream))*0x9E3779B97F4A7C15 + uint64(number)*0xBF58476D1CE4E5B9
	mix ^= mix >> 29
	dst = strconv.AppendUint(append(dst, `{"report":`...), uint64(number), 10)
	dst = strconv.AppendUint(append(dst, `,"load":`...), mix%1000, 10)
	dst = strconv.AppendBool(append(dst, `,"door":`...), mix&1024 != 0)
	dst = append(dst, `,"note":"`...)
	for at, left := int(mix>>40)%len(padding), int(size); left > 0; at = 0 {
		n := min(left, len(padding)-at)
		dst = append(dst, padding[at:at+n]...)
		left -= n
	}
	return append(dst, `"}`...)
}

// timeLayout has microseconds: what PostgreSQL keeps of it.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// AppendPayload appends the bytes that the device sends for report number. Like AppendState it can be called at any
// time later: resends over a new connection are made again, not kept.
func (l *Ledger) AppendPayload(dst []byte, stream int, number uint32, r Report) []byte {
	s := l.Streams[stream]
	switch r.Kind {
	case Resend, Straggler:
		original, _ := s.Report(r.Of)
		return l.AppendPayload(dst, stream, r.Of, original)
	case Poison:
		return appendPoison(dst, stream, number)
	}
	dst = l.appendHead(dst, r)
	dst = append(dst, `,"state":`...)
	return append(AppendState(dst, l.Seed, stream, number, r.Size), '}')
}

func (l *Ledger) appendHead(dst []byte, r Report) []byte {
	dst = strconv.AppendInt(append(dst, `{"seq":`...), r.Counter, 10)
	if r.Boot > 0 {
		dst = strconv.AppendInt(append(dst, `,"boot":`...), int64(r.Boot), 10)
	}
	dst = l.Start.Add(time.Duration(r.Due)).UTC().AppendFormat(append(dst, `,"ts":"`...), timeLayout)
	return append(dst, '"')
}

// appendPoison writes one of the payloads that PostgreSQL, Go or nobody can read. Each names its report first.
func appendPoison(dst []byte, stream int, number uint32) []byte {
	dst = strconv.AppendUint(append(dst, `{"state":{"report":`...), uint64(number), 10)
	tails := [...]string{
		`},"seq":`,                           // cut off
		`,"note":"\u0000"},"seq":1}`,         // PostgreSQL refuses the character
		`,"note":"\ud800"},"seq":1}`,         // a lone surrogate
		",\"note\":\"\xff\xfe\"},\"seq\":1}", // no UTF-8
		`,"load":1e200000},"seq":1}`,         // no number that anybody stores
		`},"seq":-1}`,
		`},"seq":"1"}`,
		`},"seq":1.5}`,
		`},"seq":1,"SEQ":2}`, // twins
		`},"boot":1}`,        // no counter
	}
	if kind := (int(number) + stream) % (len(tails) + 1); kind < len(tails) {
		return append(dst, tails[kind]...)
	}
	dst = append(append(dst, `,"deep":`...), bytes.Repeat([]byte("["), 10_000)...)
	return append(append(dst, bytes.Repeat([]byte("]"), 10_000)...), `},"seq":1}`...)
}

// NumberIn finds the report number in a payload or a state; 0 when there is none.
func NumberIn(data []byte) uint32 {
	const mark = `"report":`
	i := bytes.Index(data, []byte(mark))
	if i < 0 {
		return 0
	}
	var n uint64
	for _, c := range data[i+len(mark):] {
		if c < '0' || c > '9' || n > 1<<32 {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return uint32(n)
}
