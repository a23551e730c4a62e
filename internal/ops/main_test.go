package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func command(runE func(*cobra.Command, []string) error) *cobra.Command {
	root := &cobra.Command{Use: "relay"}
	root.AddCommand(&cobra.Command{Use: "run", Args: cobra.NoArgs, RunE: runE})
	return root
}

func TestMain_ExitCodesTellRetryFromUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		err  error
		code int
		text string
	}{
		{"fine", []string{"run"}, nil, ExitOK, ""},
		{"failed", []string{"run"}, errors.New("dial postgres://u:geheim@h: refused"), ExitFailed, "relay run: dial postgres://u:xxxxx@h: refused\n"},
		{"configuration", []string{"run"}, fmt.Errorf("x: %w", &ConfigError{Problems: []string{"a"}}), ExitUsage, "1 problem:"},
		{"usage error", []string{"run"}, UsageError(errors.New("no such bucket")), ExitUsage, "try: relay run --help"},
		{"argument too many", []string{"run", "x"}, nil, ExitUsage, "try: relay run --help"},
		{"unknown flag", []string{"run", "--nope"}, nil, ExitUsage, "unknown flag"},
		{"unknown command", []string{"walk"}, nil, ExitUsage, "unknown command"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := command(func(*cobra.Command, []string) error { return c.err })
			root.SetArgs(c.args)
			var stderr bytes.Buffer
			if code := run(t.Context(), root, &stderr); code != c.code {
				t.Errorf("exit code %d, want %d (%s)", code, c.code, stderr.String())
			}
			if !strings.Contains(stderr.String(), c.text) || (c.text == "") != (stderr.Len() == 0) {
				t.Errorf("stderr %q, want %q", stderr.String(), c.text)
			}
		})
	}
}

func TestMain_StopBySignalIsSuccess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	root := command(func(cmd *cobra.Command, _ []string) error {
		cancel()
		<-cmd.Context().Done()
		return fmt.Errorf("run: %w", cmd.Context().Err())
	})
	root.SetArgs([]string{"run"})
	if code := run(ctx, root, io.Discard); code != ExitOK {
		t.Fatalf("exit code %d", code)
	}
}

func TestNewLogger_RefusesUnknownLevelAndFormat(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	log.Warn("shown", "n", 1)
	if got := out.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"n":1`) {
		t.Fatal(got)
	}
	for _, bad := range [][2]string{{"loud", "json"}, {"info", "xml"}, {"info+2", "text"}} {
		if _, err := NewLogger(&out, bad[0], bad[1]); err == nil {
			t.Errorf("%v accepted", bad)
		}
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestAdmin_IsReadyOnlyWhenEveryConditionHolds(t *testing.T) {
	t.Parallel()
	a := NewAdmin("127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	subscribed, claiming := a.Condition("subscribed"), a.Condition("claiming")
	if a.Condition("claiming") != claiming {
		t.Fatal("a condition must be the same object by name")
	}
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return a.Run(ctx) })
	base := "http://" + a.Addr()

	if code, body := get(t, base+"/readyz"); code != 503 || !strings.Contains(body, "claiming: starting\nsubscribed: starting") {
		t.Fatalf("%d %s", code, body)
	}
	subscribed.Set(nil)
	claiming.Set(errors.New("cannot reach redis://:geheim@h"))
	if code, body := get(t, base+"/readyz"); code != 503 || !strings.Contains(body, "claiming: cannot reach redis://:xxxxx@h") || strings.Contains(body, "subscribed") {
		t.Fatalf("%d %s", code, body)
	}
	claiming.Set(nil)
	if code, body := get(t, base+"/readyz"); code != 200 || body != "ready\n" {
		t.Fatalf("%d %s", code, body)
	}
	if code, body := get(t, base+"/metrics"); code != 200 || !strings.Contains(body, `ops_ready{condition="claiming"} 1`) || !strings.Contains(body, "ops_build_info") {
		t.Fatalf("%d %s", code, body)
	}
	if code, _ := get(t, base+"/debug/pprof/"); code != 404 {
		t.Fatalf("pprof served unasked: %d", code)
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestAdmin_StreamsDoNotHoldUpAStop(t *testing.T) {
	t.Parallel()
	a := NewAdmin("127.0.0.1:0", nil, slog.New(slog.DiscardHandler))
	open := make(chan struct{})
	a.Handle("GET /stream", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		close(open)
		<-r.Context().Done()
	}))
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return a.Run(ctx) })
	resp, err := http.Get("http://" + a.Addr() + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-open
	cancel()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
