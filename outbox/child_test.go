package outbox

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

// childEnv makes the test binary run one relay: a process that can be killed and stopped.
const childEnv = "HUBSTATE_TEST_RELAY"

type childConfig struct {
	URL     string
	Brokers []string
	Config  Config
}

func childRelay() {
	var c childConfig
	if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c); err != nil {
		panic(err)
	}
	b := &bundle{url: c.URL, brokers: c.Brokers, cfg: c.Config, log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	relay, err := New(c.Config, Deps{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return b.dial("hubstate_relay")(ctx) },
		Kafka:   []kgo.Opt{kgo.SeedBrokers(c.Brokers...)}, Log: b.log,
	})
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := relay.Run(ctx); err != nil {
		panic(err)
	}
}

// child is a relay in a process of its own.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}
}

func (b *bundle) startChild(name string) *child {
	b.t.Helper()
	cfg := b.cfg
	cfg.Instance = name
	text, err := json.Marshal(childConfig{URL: b.url, Brokers: b.brokers, Config: cfg})
	if err != nil {
		b.t.Fatal(err)
	}
	c := &child{t: b.t, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	if os.Getenv("HUBSTATE_TEST_LOG") != "" {
		c.cmd.Stderr = os.Stderr
	}
	if err := c.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { _ = c.cmd.Wait(); close(c.done) }()
	b.t.Cleanup(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		_ = c.cmd.Process.Kill()
		<-c.done
	})
	return c
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.done
}
