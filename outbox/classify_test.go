package outbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientErrors has one error for each code that is ours, not Kafka's.
func clientErrors() map[string]error {
	return map[string]error{
		"BUFFER_FULL":       kgo.ErrMaxBuffered,
		"TIMEOUT":           kgo.ErrRecordTimeout,
		"ABORTED":           kgo.ErrAborting,
		"CLIENT_CLOSED":     kgo.ErrClientClosed,
		"CANCELED":          context.Canceled,
		"HANDSHAKE":         &kgo.ErrFirstReadEOF{},
		"TLS":               &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}},
		"DNS":               &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}},
		"DIAL":              &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"CONNECTION_LOST":   io.EOF,
		"CREDENTIALS":       &fs.PathError{Op: "open", Err: syscall.ENOENT},
		"BROKER":            os.NewSyscallError("write", syscall.EPIPE),
		"PURGED":            errors.New("topic purged while buffered"),
		"PARTITION_MISSING": errors.New("metadata update is missing a partition that we were previously using"),
		"SERIALIZATION":     &RowError{Code: "SERIALIZATION", Err: errors.New("header too long")},
		"UNKNOWN":           errors.New("something new"),
	}
}

// TestClassify_WrittenTable_O6 holds docs/relay-errors.md and the code together, a subtest per row, bare and wrapped.
func TestClassify_WrittenTable_O6(t *testing.T) {
	t.Parallel()
	rows := writtenTable(t)
	clients := clientErrors()
	for code, row := range rows {
		err := clients[code]
		if err == nil {
			err = kafkaError(t, code)
		}
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			for _, err := range []error{err, fmt.Errorf("publish: %w", err), errors.Join(errors.New("window"), err)} {
				if got := rowOf(Classify(err)); got != row {
					t.Errorf("%v\n code says %+v\n docs say %+v", err, got, row)
				}
			}
		})
	}
	for code := range clients {
		if _, ok := rows[code]; !ok {
			t.Errorf("%s is missing in docs/relay-errors.md", code)
		}
	}
}

// TestClassify_EveryKafkaErrorIsDecided fails when franz-go learns an error that nobody has classified.
func TestClassify_EveryKafkaErrorIsDecided(t *testing.T) {
	t.Parallel()
	rows := writtenTable(t)
	others := strings.Fields(section(t, "## Errors that a producer never meets"))
	for code := int16(-1); code < 400; code++ {
		var e *kerr.Error
		if err := kerr.ErrorForCode(code); code == 0 || !errors.As(err, &e) || e.Code != code {
			continue
		}
		_, written := rows[e.Message]
		if written == slices.Contains(others, e.Message) {
			t.Errorf("%s (%d): must stand in exactly one of the tables of docs/relay-errors.md", e.Message, code)
		}
		if v := Classify(e); !written && (v.Kind != Unknown || v.Code != e.Message) {
			t.Errorf("%s: a producer never meets it, classified %v", e.Message, v)
		}
	}
}

func TestClassify_MoreShapesOfTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code string
		kind Kind
	}{
		{context.DeadlineExceeded, "TIMEOUT", Outage},
		{kgo.ErrRecordRetries, "TIMEOUT", Outage},
		{fmt.Errorf("%w: %w", kgo.ErrRecordTimeout, kerr.MessageTooLarge), "TIMEOUT", Outage},
		{&net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, "CONNECTION_LOST", Outage},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "TIMEOUT", Outage},
		{tls.AlertError(42), "TLS", Outage},
		{tls.RecordHeaderError{}, "TLS", Outage},
		{x509.HostnameError{Certificate: &x509.Certificate{}}, "TLS", Outage},
		{net.ErrClosed, "CONNECTION_LOST", Outage},
		{kerr.TypedErrorForCode(10), "MESSAGE_TOO_LARGE", Permanent},
		{&RowError{Code: "MESSAGE_TOO_LARGE", Err: errors.New("2 MiB")}, "MESSAGE_TOO_LARGE", Permanent},
	} {
		if v := Classify(c.err); v.Code != c.code || v.Kind != c.kind {
			t.Errorf("%v: %s %s, want %s %s", c.err, v.Kind, v.Code, c.kind, c.code)
		}
	}
	if v := Classify(nil); v != (Verdict{}) || v.Exhausted(1, time.Hour) && v.Code != "" {
		t.Errorf("nil: %+v", v)
	}
}

// TestClassify_ErrorsThatFranzGoKeepsToItself: a new wording of franz-go must not turn an outage into a lost row.
func TestClassify_ErrorsThatFranzGoKeepsToItself_O6(t *testing.T) {
	t.Parallel()
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.ProducerLinger(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	failed := make(chan error, 1)
	client.Produce(t.Context(), &kgo.Record{Topic: "t"}, func(_ *kgo.Record, err error) { failed <- err })
	client.PurgeTopicsFromClient("t")
	if v := Classify(<-failed); v.Kind != Outage || v.Code != "PURGED" {
		t.Errorf("purged: %+v", v)
	}
}

func TestVerdict_OnlyRowErrorsAreEverExhausted_O6(t *testing.T) {
	t.Parallel()
	for code := range writtenTable(t) {
		err := clientErrors()[code]
		if err == nil {
			err = kafkaError(t, code)
		}
		v := Classify(err)
		spent := v.Exhausted(1_000_000, 1_000_000*time.Hour)
		if spent != v.CostsRow() || spent != (v.Kind == Permanent || v.Kind == Unknown) {
			t.Errorf("%s (%s): exhausted %v, costs the row %v", code, v.Kind, spent, v.CostsRow())
		}
	}
}

func TestVerdict_UnknownHasBothLimits(t *testing.T) {
	t.Parallel()
	v := Classify(errors.New("?"))
	for _, c := range []struct {
		attempts int
		retrying time.Duration
		want     bool
	}{
		{1, 0, false},
		{v.MaxAttempts - 1, v.MaxRetryTime - 1, false},
		{v.MaxAttempts, 0, true},
		{2, v.MaxRetryTime, true},
		{1, 24 * time.Hour, false}, // the relay slept, it did not retry
	} {
		if got := v.Exhausted(c.attempts, c.retrying); got != c.want {
			t.Errorf("after %d attempts in %v: %v", c.attempts, c.retrying, got)
		}
	}
}

func TestBackoff_FullJitterGrowsToItsMaximum(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: 100 * time.Millisecond, Max: 5 * time.Second}
	for _, c := range []struct {
		attempt int
		random  float64
		want    time.Duration
	}{
		{1, 0, 0},
		{1, 0.5, 50 * time.Millisecond},
		{2, 0.5, 100 * time.Millisecond},
		{6, 0.5, 1600 * time.Millisecond},
		{7, 0.5, 2500 * time.Millisecond},
		{1_000_000, 0.5, 2500 * time.Millisecond},
		{0, 0.5, 50 * time.Millisecond},
	} {
		if got := b.Delay(c.attempt, c.random); got != c.want {
			t.Errorf("attempt %d, random %v: %v, want %v", c.attempt, c.random, got, c.want)
		}
	}
}

// tableRow is one line of the written table, in its words.
type tableRow struct{ kind, reach, limit, backoff string }

func rowOf(v Verdict) tableRow {
	row := tableRow{kind: v.Kind.String(), reach: "partition", limit: "none", backoff: "–"}
	switch {
	case v.CostsRow():
		row.reach = "row"
	case v.Everywhere:
		row.reach = "relay"
	}
	if v.MaxAttempts > 0 {
		row.limit = strconv.Itoa(v.MaxAttempts) + "×"
	}
	if v.MaxRetryTime > 0 {
		row.limit += ", " + short(v.MaxRetryTime)
	}
	if v.Backoff.Max > 0 {
		row.backoff = short(v.Backoff.Base) + " – " + short(v.Backoff.Max)
	}
	return row
}

func short(d time.Duration) string {
	if d%time.Minute == 0 {
		return strconv.Itoa(int(d/time.Minute)) + " min"
	}
	if d%time.Second == 0 {
		return strconv.Itoa(int(d/time.Second)) + " s"
	}
	return strconv.Itoa(int(d/time.Millisecond)) + " ms"
}

// writtenTable reads every row "| `CODE` | kind | reach | limit | backoff | meaning |" of the document.
func writtenTable(t *testing.T) map[string]tableRow {
	t.Helper()
	rows := map[string]tableRow{}
	for line := range strings.Lines(document(t)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		code, ok := strings.CutPrefix(strings.TrimSpace(cells[0]), "`")
		if !ok || len(cells) != 6 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		code = strings.TrimSuffix(code, "`")
		if _, twice := rows[code]; twice || cells[5] == "" {
			t.Errorf("%s: stands twice or says nothing", code)
		}
		rows[code] = tableRow{cells[1], cells[2], cells[3], cells[4]}
	}
	if len(rows) < 60 {
		t.Fatalf("only %d rows found in docs/relay-errors.md", len(rows))
	}
	return rows
}

func kafkaError(t *testing.T, message string) error {
	t.Helper()
	for code := int16(-1); code < 400; code++ {
		var e *kerr.Error
		if errors.As(kerr.ErrorForCode(code), &e) && e.Message == message {
			return e
		}
	}
	t.Fatalf("%s is no error of Kafka, and clientErrors has none of that code", message)
	return nil
}

func section(t *testing.T, heading string) string {
	t.Helper()
	_, after, ok := strings.Cut(document(t), heading+"\n")
	if !ok {
		t.Fatalf("docs/relay-errors.md has no section %q", heading)
	}
	text, _, _ := strings.Cut(after, "\n## ")
	return text
}

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/relay-errors.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
