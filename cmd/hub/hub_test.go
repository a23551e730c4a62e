package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
)

const patience = 60 * time.Second

var pageLine = regexp.MustCompile(`(?m)^page +(http://\S+)$`)

func TestHub_SecondStartGoesOnWithKeptData(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	first := startHub(t, cfg)
	before := first.awaitDevice("agv-001", 3)
	first.awaitLine("lost 0")
	first.stop()

	second := startHub(t, cfg)
	var after shown // the first run's last events are shown first
	second.eventually("the page shows the device's new boot", func() bool {
		after = second.state("agv-001")
		return after.Boot > before.Boot
	})
	second.stop()
	if after.Epoch != before.Epoch || after.Sequence <= before.Sequence {
		t.Errorf("after the restart epoch %d, sequence %d; before it epoch %d, sequence %d", after.Epoch, after.Sequence, before.Epoch, before.Sequence)
	}
	if took := second.started; took > 20*time.Second { // 0.1 s alone; the tests of other packages run beside it
		t.Errorf("the second start took %v", took)
	}
}

func TestHub_RunsOnRealServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a Java server")
	}
	needReal(t)
	cfg := testConfig(t)
	cfg.Real = true
	h := startHub(t, cfg)
	h.awaitDevice("agv-001", 3)
	h.stop()
}

func TestHub_EphemeralLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Ephemeral, cfg.DataDir = true, ""
	h := startHub(t, cfg)
	h.stop()
	dir := regexp.MustCompile(`(?m)^data +(\S+)$`).FindStringSubmatch(h.out.String())
	if dir == nil {
		t.Fatalf("no data directory in\n%s", h.out)
	}
	if _, err := os.Stat(dir[1]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", dir[1], err)
	}
}

func TestHub_PrintsNoPassword(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	h := startHub(t, cfg)
	h.stop()
	password, err := os.ReadFile(filepath.Join(cfg.DataDir, "embedded", "postgres", "password"))
	if err != nil {
		t.Fatal(err)
	}
	if secret := strings.TrimSpace(string(password)); secret == "" || strings.Contains(h.out.String(), secret) {
		t.Errorf("the password of the database is empty or printed")
	}
}

func TestHub_StopsCleanlyWhenAPartCannotStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.KafkaBrokers = []string{"127.0.0.1:1"}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := newHub(cfg, io.Discard).run(ctx); err == nil {
		t.Fatal("a hub without Kafka started")
	}
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{DataDir: filepath.Join(cfg.DataDir, "embedded", "postgres")})
	if err != nil {
		t.Fatalf("its database was left running: %v", err)
	}
	if err := pg.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestConfig_NamesAllProblems(t *testing.T) {
	t.Parallel()
	cfg := defaultConfig()
	cfg.Devices, cfg.Every, cfg.PageAddr, cfg.LogLevel = 6000, 0, "nowhere", "loud"
	err := cfg.validate()
	for _, want := range []string{"devices", "6000", "every", "page_addr", "log_level"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
}

// testConfig is a small hub on free ports. Its data lie where user postgres can reach them.
func testConfig(t *testing.T) *config {
	t.Helper()
	dir, err := os.MkdirTemp("", "hubstate-hub-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return smallConfig(dir)
}

func needReal(t *testing.T) {
	t.Helper()
	err := embedded.CheckReal()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}

// running is a hub that a test has started.
type running struct {
	t       *testing.T
	out     *lockedBuffer
	page    string
	started time.Duration
	cancel  context.CancelFunc
	ended   chan error
}

func startHub(t *testing.T, cfg *config) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, out: &lockedBuffer{}, cancel: cancel, ended: make(chan error, 1)}
	begin := time.Now()
	go func() { r.ended <- newHub(cfg, r.out).run(ctx) }()
	t.Cleanup(cancel)
	r.eventually("the hub prints where its page is", func() bool {
		select {
		case err := <-r.ended:
			t.Fatalf("the hub ended: %v\n%s", err, r.out)
		default:
		}
		match := pageLine.FindStringSubmatch(r.out.String())
		if match != nil {
			r.page = match[1]
		}
		return match != nil
	})
	r.started = time.Since(begin)
	return r
}

func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Fatalf("the hub did not stop cleanly: %v\n%s", err, r.out)
		}
	case <-time.After(patience):
		r.t.Fatalf("the hub does not stop\n%s", r.out)
	}
}

// shown is what the page's API says of one stream.
type shown struct {
	Stream          string
	Epoch, Sequence int64
	Boot            int64
}

// awaitDevice waits until the page shows the device's state at a sequence.
func (r *running) awaitDevice(id string, sequence int64) (s shown) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("the page shows %s at sequence %d", id, sequence), func() bool {
		s = r.state(id)
		return s.Sequence >= sequence
	})
	return s
}

func (r *running) state(id string) shown {
	response, err := http.Get(r.page + "api/v1/devices/" + id)
	if err != nil {
		return shown{}
	}
	defer response.Body.Close()
	var page struct{ Device struct{ Streams []shown } }
	if json.NewDecoder(response.Body).Decode(&page) != nil {
		return shown{}
	}
	for _, stream := range page.Device.Streams {
		if stream.Stream == "state" {
			return stream
		}
	}
	return shown{}
}

func (r *running) awaitLine(text string) {
	r.t.Helper()
	r.eventually("a line with "+text, func() bool { return strings.Contains(r.out.String(), text) })
}

func (r *running) eventually(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return
		}
	}
	r.t.Fatalf("waited %v in vain: %s\n%s", patience, what, r.out)
}

// lockedBuffer is written by the hub and read by the test.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
