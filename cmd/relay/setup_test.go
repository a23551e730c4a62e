package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// update rewrites the golden files: go test ./cmd/relay -update
var update = flag.Bool("update", false, "rewrite the golden files")

// relay runs one command as an operator would and returns what it printed.
func relay(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

// must runs a command that must succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := relay(t.Context(), args...)
	if err != nil {
		t.Fatalf("relay %v: %v\n%s", args, err, out)
	}
	return out
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// event is what a test appends of a device: the next sequences of its stream "state".
type event struct {
	device   string
	sequence int64
	epoch    int64 // 0 = 1
	payload  string
	full     bool // with everything that an event may carry
}

// appendEvents commits events as ingest would, in one transaction.
func appendEvents(t *testing.T, conn *pgx.Conn, events ...event) {
	t.Helper()
	buckets := testenv.Settings().Buckets
	keys := make([]string, len(events))
	for i, e := range events {
		keys[i] = e.device
	}
	err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT ensure_partition('outbox', clock_timestamp())"); err != nil {
			return err
		}
		var first, second pgx.Batch
		txn := outbox.Begin(&first, buckets, keys)
		if err := tx.SendBatch(t.Context(), &first).Close(); err != nil {
			return err
		}
		for _, e := range events {
			if err := txn.Append(message(e)); err != nil {
				return err
			}
		}
		if err := txn.Queue(&second); err != nil {
			return err
		}
		return tx.SendBatch(t.Context(), &second).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func message(e event) *outbox.Message {
	payload := e.payload
	if payload == "" {
		payload = fmt.Sprintf(`{"device_id":%q,"sequence":%d}`, e.device, e.sequence)
	}
	m := &outbox.Message{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "device", AggregateID: e.device, EventType: "DeviceStateChanged", SchemaVersion: 1,
		Stream: "state", Epoch: max(e.epoch, 1), Sequence: e.sequence, Source: "/hubs/h1", Payload: []byte(payload),
	}
	if e.full {
		m.Traceparent, m.CorrelationID, m.CausationID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "correlation", "causation"
		m.OccurredAt = time.Date(2026, 2, 3, 4, 5, 6, 7_000, time.UTC)
	}
	return m
}

// eventually polls until check is nil or the deadline has passed.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	err := check()
	for deadline := time.Now().Add(within); err != nil; err = check() {
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// golden compares text with testdata/name after what differs from run to run was masked.
func golden(t *testing.T, name, text string) {
	t.Helper()
	for _, m := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, "UUID"},
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`, "TIME"},
		{`outbox_p\d{8}_\d{4}`, "outbox_pTIME"},
		{`\b[0-9a-f]{64}\b`, "SHA256"},
		{`--digest [0-9a-f]+`, "--digest DIGEST"},
		{`_seconds": [0-9.]+`, `_seconds": 0`},
		{`\b\d+(\.\d+)?m?s\b`, "AGE"},
		{` {2,}`, "  "}, // columns are as wide as what was masked
	} {
		text = regexp.MustCompile(m.pattern).ReplaceAllString(text, m.with)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("%s (run with -update to accept)\n--- want\n%s\n--- got\n%s", path, want, text)
	}
}
