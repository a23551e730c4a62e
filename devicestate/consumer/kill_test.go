package consumer_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a member process is told. memberDatabase set makes the test binary one.
const (
	memberDatabase = "CONSUMER_TEST_MEMBER_DATABASE"
	memberBrokers  = "CONSUMER_TEST_MEMBER_BROKERS"
	memberTopic    = "CONSUMER_TEST_MEMBER_TOPIC"
	memberName     = "CONSUMER_TEST_MEMBER_NAME"
)

// runMember is a program of another team: events into its table, in the transaction of the positions.
func runMember() int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	pool, err := pgxpool.New(ctx, os.Getenv(memberDatabase))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer pool.Close()
	c, err := consumer.New(consumer.Config{
		Brokers: strings.Split(os.Getenv(memberBrokers), ","), Topic: os.Getenv(memberTopic), Group: "killed", MaxBatch: 20,
		Store:   consumer.NewPostgresStore(pool, "killed", insertEffects),
		Options: []kgo.Opt{kgo.InstanceID(os.Getenv(memberName)), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(500 * time.Millisecond)},
	})
	if err == nil {
		err = c.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func startMember(t *testing.T, name, database string, k *topic) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), memberDatabase+"="+database, memberBrokers+"="+strings.Join(k.brokers, ","),
		memberTopic+"="+k.name, memberName+"="+name)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestTwoMembers_OneKilledEvery2s_EffectOnce_C1: SIGKILL in the middle of whatever it does, on real Kafka and PostgreSQL.
func TestTwoMembers_OneKilledEvery2s_EffectOnce_C1(t *testing.T) {
	t.Parallel()
	brokers := testenv.Kafka(t)
	url := testenv.PostgresRaw(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	prepareTables(t, pool)
	k := newTopic(t, brokers, 8)
	producing := feedTopic(t, k, 1)

	members := []*exec.Cmd{startMember(t, "member-0", url, k), startMember(t, "member-1", url, k)}
	kills := 3
	if os.Getenv("HUBSTATE_TEST_LONG") != "" {
		kills = 20
	}
	for i := range kills {
		before := effectCount(pool)
		eventually(t, "progress before the next kill", func() bool { return effectCount(pool) > before+500 })
		time.Sleep(2 * time.Second) // the load goes on: this is the schedule of the faults, nothing waits for it
		victim := i % 2
		if err := members[victim].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = members[victim].Wait()
		members[victim] = startMember(t, fmt.Sprintf("member-%d", victim), url, k)
	}
	last := producing()
	eventually(t, "everything applied", func() bool { return effectCount(pool) >= int(last)*faultDevices })
	for _, m := range members {
		if err := m.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(); err != nil {
			t.Errorf("member stopped with %v", err)
		}
	}
	for d := range faultDevices {
		if got := effectsOf(t, pool, fmt.Sprintf("device-%d", d)); !slices.Equal(got, dense(last)) {
			t.Fatalf("device-%d: %d effects, not each of 1..%d once and in order", d, len(got), last)
		}
	}
	t.Logf("%d events, %d kills", int(last)*faultDevices, kills)
}
