package monitor

import (
	"strconv"
	"strings"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
)

// instantsOf is the way of one delivery, applied now.
func instantsOf(d *consumer.Delivery, now time.Time) Instants {
	return Instants{
		Occurred: d.Event.OccurredAt, Received: d.Event.ReceivedAt, Committed: d.CommittedAt, Published: d.Timestamp, Applied: now,
	}
}

// appendInstants writes what t:STREAM holds: unix milliseconds of the five instants, 0 when unknown, joined by commas.
func appendInstants(dst []byte, i Instants) []byte {
	for n, at := range [...]time.Time{i.Occurred, i.Received, i.Committed, i.Published, i.Applied} {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, millis(at), 10)
	}
	return dst
}

func parseInstants(text string) Instants {
	var at [5]time.Time
	for n, part := range strings.SplitN(text, ",", len(at)) {
		at[n] = fromMillis(part)
	}
	return Instants{Occurred: at[0], Received: at[1], Committed: at[2], Published: at[3], Applied: at[4]}
}

// appendNumbers writes what view.lua decides with; the order is its pattern's.
func appendNumbers(dst []byte, e *devicestate.Event, x Expectation, now time.Time) []byte {
	var live int64
	if !e.Marks.Has(devicestate.MarkRetained) { // a retained copy is no sign of life
		live = millis(Live(time.Time{}, e.ReceivedAt, now))
	}
	number := func(n int64) { dst = append(strconv.AppendInt(dst, max(0, n), 10), ':') }
	number(live)
	number(x.Silent.Milliseconds())
	if x.Connection {
		dst = append(dst, ReadLink(e.State)...)
	}
	dst = append(dst, ':')
	for _, n := range [...]int64{bit(e.Marks.Has(devicestate.MarkClockSuspect)), bit(behind(e, x)), e.Missed, e.Late, e.Duplicate, e.Rejected} {
		number(n)
	}
	return append(dst, notable(e.Marks)...)
}

// behind reports whether the device's time is further behind ours than its clock may be off. One such report is perhaps
// an old one that was sent late; view.lua calls the clock suspect when they do not end.
func behind(e *devicestate.Event, x Expectation) bool {
	return !e.OccurredAt.IsZero() && !e.Marks.Has(devicestate.MarkRetained) && e.ReceivedAt.Sub(e.OccurredAt) > x.MaxSkew
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// notable leaves out the marks that say nothing unusual, and that of the clock: view.lua notes when it changes.
func notable(m devicestate.Marks) string {
	return (m &^ (devicestate.MarkHeartbeat | devicestate.MarkClockSuspect)).String()
}

func appendSkips(dst []byte, skips []devicestate.Skip) []byte {
	for i, s := range skips {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(strconv.AppendInt(dst, s.From, 10), '-')
		dst = strconv.AppendInt(dst, s.To, 10)
	}
	return dst
}

// A position is written with 19 digits each, as many as an int64 has, so that text order is its order.
const (
	positionDigits = 19
	positionSize   = 2*positionDigits + 1
)

func formatPosition(p devicestate.Position) string {
	buf := [positionSize]byte{positionDigits: '.'}
	putDigits(buf[:positionDigits], p.Epoch)
	putDigits(buf[positionDigits+1:], p.Sequence)
	return string(buf[:])
}

func putDigits(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// parsePosition is the zero position for anything that is none.
func parsePosition(text string) devicestate.Position {
	epoch, sequence, _ := strings.Cut(text, ".")
	return devicestate.Position{Epoch: parseInt(epoch), Sequence: parseInt(sequence)}
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// fromMillis reads unix milliseconds; what is no positive number is the zero time.
func fromMillis(text string) time.Time {
	ms, err := strconv.ParseFloat(text, 64) // a sorted set's score comes as a float
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(ms)).UTC()
}
