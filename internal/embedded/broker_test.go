package embedded_test

import (
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
	"github.com/hubstate/hubstate/internal/faultnet"
)

// TestMain also serves as the broker process that a test kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HUBSTATE_TEST_BROKER_DIR"); dir != "" {
		serveBroker(dir)
	}
	os.Exit(m.Run())
}

func serveBroker(dir string) {
	port, err := strconv.Atoi(os.Getenv("HUBSTATE_TEST_BROKER_PORT"))
	if err == nil {
		_, err = embedded.StartBroker(context.Background(), embedded.BrokerOptions{Dir: dir, Port: port})
	}
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	select {}
}

// brokers are the brokers that must keep the same contract.
func brokers() map[string]func(*testing.T) string {
	return map[string]func(*testing.T) string{
		"embedded": func(t *testing.T) string { return startBroker(t, embedded.BrokerOptions{}) },
		"embedded on disk": func(t *testing.T) string {
			return startBroker(t, embedded.BrokerOptions{Dir: t.TempDir()})
		},
		"Mosquitto": func(t *testing.T) string {
			broker, err := embedded.StartMosquitto(t.Context(), embedded.MosquittoOptions{Dir: t.TempDir()})
			needs(t, err)
			stopAtEnd(t, broker.Stop)
			return broker.URL()
		},
	}
}

// load is how much a publisher sends; a third with -short, which is how the race detector runs.
func load(each int) int {
	if testing.Short() {
		return each / 3
	}
	return each
}

func startBroker(t *testing.T, opts embedded.BrokerOptions) string {
	t.Helper()
	broker, err := embedded.StartBroker(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, broker.Stop)
	return broker.URL()
}

func TestBroker_OverloadLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			sub := newSubscriber(t, url)
			sub.connect(true)
			pubs := publish(t, url, 20, load(600))
			pubs.wait()
			sub.awaitAll(pubs)
		})
	}
}

func TestBroker_QueuesForASessionThatIsAwayAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			sub := newSubscriber(t, url)
			sub.connect(true)
			sub.disconnect()
			pubs := publish(t, url, 20, load(600))
			pubs.wait()
			sub.connect(false) // receives, and acknowledges nothing
			sub.awaitReceived(500)
			sub.disconnect()
			sub.connect(true)
			sub.awaitAll(pubs)
		})
	}
}

func TestBroker_ReconnectsUnderLoadLoseAndReorderNothing(t *testing.T) {
	t.Parallel()
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t)
			proxy, err := faultnet.New(t.Context(), strings.TrimPrefix(url, "mqtt://"))
			if err != nil {
				t.Fatal(err)
			}
			sub := newSubscriber(t, "mqtt://"+proxy.Addr())
			sub.connect(true)
			each := load(1000)
			pubs := publish(t, url, 20, each)
			for i := range 10 {
				sub.awaitReceived(int64(20 * each * (i + 1) * 3 / 40)) // the last at three quarters
				proxy.Reset()
				sub.awaitLost()
				sub.connect(true)
			}
			pubs.wait()
			sub.awaitAll(pubs)
		})
	}
}

func TestBroker_KilledLosesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "broker")
	url := "mqtt://127.0.0.1:" + strconv.Itoa(port)
	child := spawnBroker(t, dir, port)
	sub := newSubscriber(t, url)
	sub.connect(true)
	pubs := publish(t, url, 20, 5000)
	sub.awaitReceived(3000)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	pubs.wait()
	if acked := pubs.acknowledged(); acked == 20*5000 {
		t.Fatal("everything was published before the kill: the test shows nothing")
	}
	sub.awaitLost()
	spawnBroker(t, dir, port)
	sub.connect(true)
	sub.awaitAll(pubs)
}

// spawnBroker runs the broker in a process of its own and returns when it listens.
func spawnBroker(t *testing.T, dir string, port int) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "HUBSTATE_TEST_BROKER_DIR="+dir, "HUBSTATE_TEST_BROKER_PORT="+strconv.Itoa(port))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err == nil || !errors.Is(err, os.ErrProcessDone) {
			_ = cmd.Wait()
		}
	})
	eventually(t, "the broker process listens", func() bool { return listens(port) })
	return cmd
}

func TestBroker_KeepsSessionsOverAnOrderlyRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	broker, err := embedded.StartBroker(t.Context(), embedded.BrokerOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	sub := newSubscriber(t, broker.URL())
	sub.connect(true)
	sub.disconnect()
	pubs := publish(t, broker.URL(), 2, 200)
	pubs.wait()
	if err := broker.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	sub.url = startBroker(t, embedded.BrokerOptions{Dir: dir})
	sub.connect(true)
	sub.awaitAll(pubs)
}

func TestBroker_AFullSessionMakesItsPublishersWait(t *testing.T) {
	t.Parallel()
	url := startBroker(t, embedded.BrokerOptions{Window: 50})
	sub := newSubscriber(t, url)
	sub.connect(false)
	pubs := publish(t, url, 4, 100)
	sub.awaitReceived(50)
	pubs.neverMoreThan(50, 200*time.Millisecond)
	sub.ackFromNowOn()
	pubs.wait()
	sub.awaitAll(pubs)
}

func TestBroker_AWillIsSentOnceAndUnderItsOwnTopic(t *testing.T) {
	t.Parallel()
	url := startBroker(t, embedded.BrokerOptions{})
	topics := listenToAll(t, url)
	publishThenDie(t, url, 1)
	for _, want := range []string{"contract/0", "contract/0"} { // the report, then the will
		if got := <-topics; got != want {
			t.Fatalf("a message on %q, want %q", got, want)
		}
	}
	publishThenDie(t, url, 1)
	if got := <-topics; got != "contract/0" {
		t.Fatalf("after the will a message on %q", got)
	}
}

func TestBroker_AWillArrivesAfterTheReportsBeforeIt(t *testing.T) {
	t.Parallel()
	url := startBroker(t, embedded.BrokerOptions{})
	sub := newSubscriber(t, url)
	sub.connect(true)
	sub.disconnect()
	publishThenDie(t, url, 300)
	sub.connect(true)
	eventually(t, "the will arrives", func() bool { return sub.willAfter() != 0 })
	if after := sub.willAfter(); after != 300 {
		t.Fatalf("the will came after %d of 300 reports", after)
	}
}

func TestBroker_AStuckOnlookerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	url := startBroker(t, embedded.BrokerOptions{})
	stuck := onlooker(t, url) // QoS 0, and reads nothing any more
	sub := newSubscriber(t, url)
	sub.connect(true)
	pubs := publishPadded(t, url, 10, 2000, 1024)
	pubs.wait()
	sub.awaitAll(pubs)
	_ = stuck.Close()
}
