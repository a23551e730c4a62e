package devicestate

import (
	"crypto/sha256"
	"time"
)

// Number is an optional integer.
type Number struct {
	V  int64
	OK bool
}

// Some returns a present Number.
func Some(v int64) Number { return Number{V: v, OK: true} }

// Hash is the first 16 bytes of a SHA-256: enough to tell contents apart, small enough to keep per stream.
type Hash [16]byte

// HashOf returns the Hash of b.
func HashOf(b []byte) Hash {
	sum := sha256.Sum256(b)
	return Hash(sum[:16])
}

// Report is one device report, read and validated, ready for Next.
type Report struct {
	Device, Stream, Hub string

	Counter    Number
	Boot       Number
	Time       time.Time // device time as sent; zero when missing
	BadTime    bool      // a time was sent that cannot be read: treated as suspect
	ReceivedAt time.Time // our time

	State    []byte // compact JSON after drop and mask; never changed after Parse
	Hash     Hash   // over State
	EmitHash Hash   // over State without IgnoreFields; what `emit: changed` compares

	Retained    bool // a retained copy: decided as any other, but refreshes no freshness
	Redelivered bool // recognised by the lane's tail as committed before

	FirstEpoch int64 // least epoch of a stream that starts with this report: raised by a rebase; 0 = 1

	Reject *Reject // the topic was readable and the payload was not: row 1

	Traceparent   string
	CorrelationID string
	CausationID   string
}
