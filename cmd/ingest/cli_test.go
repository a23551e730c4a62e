package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// call runs one command line and returns what it printed.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SilenceErrors, root.SilenceUsage = true, true
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

func decode[T any](t *testing.T, args ...string) T {
	t.Helper()
	out, err := command(t, append(args, "--json")...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	var v T
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return v
}

func TestProfileTest_RecordingsShowTheirOutcome(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"vda5050-two-vehicles.ndjson":  "HubWorks/A-001 connection 4, HubWorks/A-001 state 31, HubWorks/A-002 connection 2, HubWorks/A-002 state 26, ",
		"vda5050-v3-two-robots.ndjson": "Acme/R-10 connection 2, Acme/R-10 state 24, Acme/R-11 connection 4, Acme/R-11 state 15, ",
	} {
		a := decode[testAnswer](t, "profile", "test", "--profiles", "vda5050", "--recording", filepath.Join("..", "..", "devicestate", "testdata", file))
		sequences := map[string]int64{}
		for _, s := range a.Streams {
			sequences[s.Device+" "+s.Stream] = s.Sequence
		}
		for entry := range strings.SplitSeq(strings.TrimSuffix(want, ", "), ", ") {
			i := strings.LastIndex(entry, " ")
			if got := fmt.Sprint(sequences[entry[:i]]); got != entry[i+1:] {
				t.Errorf("%s: %s ends at %s, want %s", file, entry[:i], got, entry[i+1:])
			}
		}
		for _, m := range a.Messages {
			if m.Class == "" || m.Why == "" {
				t.Errorf("%s: message without class or reason: %+v", file, m)
			}
		}
	}
}

func TestProfileTest_OneMessageIsExplained(t *testing.T) {
	t.Parallel()
	a := decode[testAnswer](t, "profile", "test", "--topic", "hubs/h/devices/d/state", "--payload", `{"seq":"7","state":{}}`)
	if m := a.Messages[0]; m.Class != "quarantined" || !strings.Contains(m.Why, "counter_invalid: seq") || m.Profile != "hubstate" {
		t.Errorf("%+v", m)
	}
	for _, args := range [][]string{{"profile", "test"}, {"profile", "test", "--topic", "a", "--recording", "b"}, {"profile", "show", "nothing"}, {"profile", "test", "--topic", "a", "--profiles", "no.yaml"}} {
		if out, err := command(t, args...); err == nil {
			t.Errorf("%v worked: %s", args, out)
		}
	}
}

func TestConfig_AllProblemsInOneMessageAndSecretsMasked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ingest.yaml")
	text := `
database_url: postgres://u:topsecret@h/db
mqtt_password: alsosecret
batch_reports: 0
queue_reports: -5
outbox_full: drop
sessions:
  - lane: "a b"
    mqtt_url: http://x
    qos: 2
  - lane: c
    mqtt_url: mqtt://u:hidden@h:1
    filters: ["a/#/b"]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "config", "--config", path)
	for _, want := range []string{"queue_reports = -5", "outbox_full = \"drop\"", "sessions[0].lane", "sessions[0].mqtt_url", "sessions[0].qos", "\"a/#/b\""} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in: %v", want, err)
		}
	}
	for _, secret := range []string{"topsecret", "alsosecret", "hidden"} {
		if strings.Contains(out, secret) || err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%q is shown", secret)
		}
	}
	if !strings.Contains(out, "payload_limit: 262144") {
		t.Errorf("limits are not shown:\n%s", out)
	}
}

// The tools end to end, expected failures included: look with a reader's login, change with the ingester's.
func TestTools_WalkThrough(t *testing.T) {
	t.Parallel()
	db := testenv.Postgres(t)
	reader := login(t, db, "hubstate_reader")
	fillRejects(t, db)
	list := decode[[]ingest.Reject](t, "rejects", "list", "--database-url", reader)
	if len(list) != 2 || list[0].Reason != "no_profile" {
		t.Fatalf("%+v", list)
	}
	id := fmt.Sprint(list[0].ID)
	if s := decode[shown](t, "rejects", "show", id, "--database-url", reader); s.Payload != `{"n":1,"v":{"kwh":5}}` || s.Base64 {
		t.Errorf("%+v", s)
	}
	profile := filepath.Join(t.TempDir(), "plant.yaml")
	if err := os.WriteFile(profile, []byte("name: plant\ntopics: [{pattern: 'plant/{device}/{stream}'}]\nstreams: {meter: {fields: {counter: n, state: v}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "rejects", "retry", "--profiles", profile, "--database-url", db); err != nil || !strings.Contains(out, "--yes") {
		t.Errorf("dry run: %v %s", err, out)
	}
	if _, err := command(t, "rejects", "retry", id, "--profiles", profile, "--yes", "--database-url", db); err == nil || !strings.Contains(err.Error(), "--reason") {
		t.Errorf("no reason: %v", err)
	}
	done := decode[[]ingest.Retried](t, "rejects", "retry", id, "--profiles", profile, "--yes", "--reason", "profile written", "--database-url", db)
	if len(done) != 1 || done[0].Class != "applied" {
		t.Errorf("%+v", done)
	}
	if _, err := command(t, "rejects", "discard", fmt.Sprint(list[1].ID), "--reason", "broken", "--database-url", db); err != nil {
		t.Error(err)
	}
	if r := decode[[]ingest.Restated](t, "restate", "--device", "7", "--reason", "x", "--database-url", db); len(r) != 1 || r[0].Sequence != 2 {
		t.Errorf("%+v", r)
	}
	if r := decode[[]ingest.Restated](t, "move", "--device", "7", "--hub", "h9", "--reason", "x", "--database-url", db); len(r) != 1 || r[0].Hub != "h9" {
		t.Errorf("%+v", r)
	}
	if _, err := command(t, "accept-reboot", "--device", "7", "--stream", "meter", "--reason", "x", "--database-url", db); err != nil {
		t.Error(err)
	}
	if _, err := command(t, "restate", "--device", "unheard", "--reason", "x", "--database-url", db); !ingest.IsUnknown(err) {
		t.Errorf("unknown device: %v", err)
	}
	if _, err := command(t, "restate", "--device", "7", "--reason", "x", "--database-url", reader); err == nil {
		t.Error("a reader changed a state")
	}
	if s := decode[ingest.Status](t, "status", "--database-url", reader); len(s.Lanes) != 1 || s.Undecided != 0 {
		t.Errorf("%+v", s)
	}
	for _, args := range [][]string{{"status"}, {"gaps", "list"}, {"rejects", "list", "--decided"}} {
		if out, err := command(t, append(args, "--database-url", reader)...); err != nil || out == "" {
			t.Errorf("%v: %v", args, err)
		}
	}
	decode[gapsAnswer](t, "gaps", "list", "--database-url", reader)
}

// login makes a login user that is a member of one group role only.
func login(t *testing.T, db, role string) string {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprintf("test_%s_%d_%s", role, os.Getpid(), strings.TrimPrefix(u.Path, "/"))
	admin(t, db, fmt.Sprintf(`CREATE ROLE %q LOGIN PASSWORD 'x' IN ROLE %s`, user, role))
	t.Cleanup(func() {
		pool, err := pgxpool.New(context.WithoutCancel(t.Context()), db)
		if err == nil {
			_, err = pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf(`DROP ROLE %q`, user))
			pool.Close()
		}
		if err != nil {
			t.Errorf("drop role: %v", err)
		}
	})
	u.User = url.UserPassword(user, "x")
	return u.String()
}

func admin(t *testing.T, db string, statements ...string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, s := range statements {
		if _, err := pool.Exec(t.Context(), s); err != nil {
			t.Fatal(errors.Join(err, fmt.Errorf("%s", s)))
		}
	}
}

func fillRejects(t *testing.T, db string) {
	t.Helper()
	const row = `INSERT INTO ingest_reject (lane, topic, reason, detail, payload, received_at) VALUES ('l', '%s', 'no_profile', 'x', '%s', now())`
	admin(t, db, fmt.Sprintf(row, "plant/7/meter", `{"n":1,"v":{"kwh":5}}`), fmt.Sprintf(row, "plant/8/meter", `\x00ff`))
}

// The worked example of docs/profiles.md works as it stands there.
func TestProfileTest_TheWorkedExampleOfTheDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "profiles.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	profile, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no example")
	}
	path := filepath.Join(t.TempDir(), "meters.yaml")
	if err := os.WriteFile(path, []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	_, rest, _ = strings.Cut(string(page), "```\nplant/")
	messages, _, _ := strings.Cut("plant/"+rest, "```")
	for line := range strings.Lines(messages) {
		topic, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		a := decode[testAnswer](t, "profile", "test", "--profiles", path, "--topic", topic, "--payload", strings.TrimSpace(payload))
		m := a.Messages[0]
		if m.Class != "applied" || m.Device != "M-17" || m.Hub != "north" || strings.Contains(m.State, "smith") {
			t.Errorf("%+v", m)
		}
	}
}
