package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func execute(ctx context.Context, args ...string) (string, error) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(io.Discard)
	root.SetArgs(args)
	root.SilenceErrors, root.SilenceUsage = true, true
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

func TestRun_RefusesAConfigurationWithAllItsProblemsAndNoSecret(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "monitor.yaml")
	text := "redis_url: ftp://u:geheim@r\npage_addr: 0.0.0.0:80\nsilent_percent: 200\nlog_level: loud\nprofiles: [nonsense]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := execute(t.Context(), "run", "--config", path, "--admin-addr", "nowhere")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"7 problems", "kafka_brokers", "redis_url", "page_token", "silent_percent = 200", `log_level = "loud"`, `profiles = "nonsense"`, `admin_addr = "nowhere"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "geheim") {
		t.Errorf("secret shown:\n%v", err)
	}
}

func TestConfig_PrintsWhatIsInForceWithoutSecrets(t *testing.T) {
	t.Parallel()
	out, err := execute(t.Context(), "config", "--redis-url", "redis://:geheim@r:6379/0", "--kafka-brokers", "a:1,b:2", "--page-token", "0123456789abcdef0123")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"redis_url: redis://:xxxxx@r:6379/0", "page_token: xxxxx", "- a:1", "silent_percent: 50", "kafka_topic: device-state"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "geheim") || strings.Contains(out, "0123456789abcdef") {
		t.Errorf("secret shown:\n%s", out)
	}
}

func TestRun_IsReadyWhenItReadsAndServesAndStopsWhenAsked(t *testing.T) {
	t.Parallel()
	topic := testenv.Settings().Topic
	kafka := testenv.FakeKafka(t, kfake.SeedTopics(4, topic))
	admin := testenv.FreeAddr(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g errgroup.Group
	g.Go(func() error {
		_, err := execute(ctx, "run", "--kafka-brokers", kafka.ListenAddrs()[0], "--kafka-topic", topic, "--redis-url", testenv.Redis(t),
			"--database-url", testenv.Postgres(t), "--page-addr", "127.0.0.1:0", "--admin-addr", admin, "--log-level", "error", "--group", t.Name())
		return err
	})
	deadline := time.Now().Add(60 * time.Second)
	for {
		resp, err := http.Get("http://" + admin + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("never ready: %v", err)
		}
		time.Sleep(20 * time.Millisecond) // a poll, not a wait for a state
	}
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`ops_ready{condition="reading"} 1`, "monitor_screen_age_seconds", "monitor_relays 0", "consumer_events_total", "ops_build_info"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	cancel()
	if err := g.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestRun_RefusesTheDatabaseOfAnotherTopic(t *testing.T) {
	t.Parallel()
	_, err := execute(t.Context(), "run", "--kafka-brokers", "127.0.0.1:1", "--kafka-topic", "another", "--redis-url", "redis://127.0.0.1:1",
		"--database-url", testenv.Postgres(t), "--page-addr", "127.0.0.1:0", "--admin-addr", "")
	if err == nil || !strings.Contains(err.Error(), `kafka_topic = "another"`) {
		t.Errorf("%v", err)
	}
}
