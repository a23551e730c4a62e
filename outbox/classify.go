package outbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Kind says whose fault an error of publishing is, and so what may happen to the row that met it.
type Kind uint8

const (
	// Unknown errors may be the row's fault: it is retried alone up to MaxAttempts and MaxRetryTime, then dead.
	Unknown Kind = iota
	// Outage is the fault of a broker, the network, a right or a setting, never of a row: retried for ever, spends no
	// row attempt, dead-letters nothing (O6).
	Outage
	// Throttled is an Outage in which somebody asks for less: the same, with a longer breath.
	Throttled
	// Permanent is the row's own fault and never heals. It counts only for a row that was alone in its batch: franz-go
	// fails all records that are buffered for a partition with the error of one of them.
	Permanent
)

// String returns the word that docs/relay-errors.md, logs and metrics use.
func (k Kind) String() string { return [...]string{"unknown", "outage", "throttled", "permanent"}[k&3] }

// Verdict is what an error of publishing means.
type Verdict struct {
	Kind Kind
	// Code is stable: Kafka's own name of the error ("MESSAGE_TOO_LARGE"), or one of ours for errors of the client
	// ("DIAL", "TIMEOUT"). It is stored, shown and counted.
	Code string
	// Everywhere is true when no partition can be better off (a refused login, a closed client): the whole relay backs
	// off, not only the partition that met the error.
	Everywhere bool
	// MaxAttempts is how often an Unknown row is sent before it is dead; 0 = without limit.
	MaxAttempts int
	// MaxRetryTime is how long an Unknown row is retried before it is dead; 0 = without limit.
	MaxRetryTime time.Duration
	Backoff      Backoff
}

// CostsRow is true when the error counts against the row that was alone in its batch.
func (v Verdict) CostsRow() bool { return v.Kind == Permanent || v.Kind == Unknown }

// Exhausted is true when a row that was sent attempts times, the first of them retrying ago, is to be given up. A row
// that was sent once is never given up for the time alone: a relay that slept has not retried.
func (v Verdict) Exhausted(attempts int, retrying time.Duration) bool {
	switch v.Kind {
	case Permanent:
		return true
	case Unknown:
		return v.MaxAttempts > 0 && attempts >= v.MaxAttempts || v.MaxRetryTime > 0 && attempts > 1 && retrying >= v.MaxRetryTime
	}
	return false
}

// RowError is a row that cannot be sent, found before it was submitted: Permanent with its Code.
type RowError struct {
	Code string
	Err  error
}

func (e *RowError) Error() string { return e.Code + ": " + e.Err.Error() }
func (e *RowError) Unwrap() error { return e.Err }

// Classify says what an error of producing means; wrapped errors count as what they wrap. It is pure and total: an error
// it has never heard of is Unknown. A nil error is the zero Verdict. docs/relay-errors.md is the same table in prose.
func Classify(err error) Verdict {
	if err == nil {
		return Verdict{}
	}
	var row *RowError
	if errors.As(err, &row) {
		return Verdict{Kind: Permanent, Code: row.Code, MaxAttempts: 1}
	}
	if v, ok := classifyClient(err); ok {
		return v
	}
	var broker *kerr.Error
	if errors.As(err, &broker) {
		return classifyBroker(broker)
	}
	if v, ok := classifyNetwork(err); ok {
		return v
	}
	return unknown("UNKNOWN")
}

// classifyClient judges the errors that franz-go itself gives to records. They come before Kafka's: a record timed out
// by the client may carry the last error of the broker.
func classifyClient(err error) (Verdict, bool) {
	var eof *kgo.ErrFirstReadEOF
	switch {
	case errors.Is(err, kgo.ErrMaxBuffered):
		return throttled("BUFFER_FULL"), true
	case errors.Is(err, kgo.ErrRecordTimeout), errors.Is(err, kgo.ErrRecordRetries):
		return outage("TIMEOUT"), true
	case errors.Is(err, kgo.ErrAborting):
		return outage("ABORTED"), true
	case errors.Is(err, kgo.ErrClientClosed):
		return everywhere("CLIENT_CLOSED"), true
	case errors.Is(err, context.Canceled):
		return outage("CANCELED"), true
	case errors.As(err, &eof):
		return everywhere("HANDSHAKE"), true
	}
	return classifyText(err)
}

// classifyText knows errors of franz-go that it does not export; TestClassify_ErrorsThatFranzGoKeepsToItself asks it for them.
func classifyText(err error) (Verdict, bool) {
	for _, known := range [...][2]string{
		{"topic purged while buffered", "PURGED"},
		{"metadata update is missing a partition that we were previously using", "PARTITION_MISSING"},
		{"merged batch cannot be sent", "BROKER"},
	} {
		if strings.Contains(err.Error(), known[0]) {
			return outage(known[1]), true
		}
	}
	return Verdict{}, false
}

// classifyBroker looks an error of Kafka up; see kafkaErrors.
func classifyBroker(e *kerr.Error) Verdict {
	for _, group := range kafkaErrors() {
		for _, member := range group.errors {
			if member.Code == e.Code {
				return group.verdict(e.Message)
			}
		}
	}
	return unknown(e.Message)
}

// classifyNetwork judges what the operating system, DNS and TLS say. None of it can be a row's fault.
func classifyNetwork(err error) (Verdict, bool) {
	var (
		dns *net.DNSError
		op  *net.OpError
		to  interface{ Timeout() bool }
	)
	switch {
	case isTLS(err):
		return everywhere("TLS"), true
	case errors.As(err, &dns):
		return outage("DNS"), true
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &to) && to.Timeout():
		return outage("TIMEOUT"), true
	case errors.As(err, &op) && op.Op == "dial":
		return outage("DIAL"), true
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.As(err, &op):
		return outage("CONNECTION_LOST"), true
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return everywhere("CREDENTIALS"), true // a password or certificate file, read at each login
	case kgo.IsRetryableBrokerErr(err):
		return outage("BROKER"), true
	}
	return Verdict{}, false
}

func isTLS(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		header       tls.RecordHeaderError
		alert        tls.AlertError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	return errors.As(err, &verification) || errors.As(err, &header) || errors.As(err, &alert) ||
		errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}
