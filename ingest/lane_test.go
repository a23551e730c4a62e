package ingest

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
)

func laneConfig(t *testing.T, broker, instance string) Config {
	return Config{
		Instance: instance, MQTTURL: broker, Lease: 2 * time.Second,
		Sessions: []SessionConfig{{Lane: name(t), Filters: []string{"hubs/" + name(t) + "/devices/+/+"}}},
	}
}

// An ingester stopped between its locks and its writes: the server ends its transaction, its buckets are free within 6 s,
// a standby goes on, and the sleeper, once awake, commits and acknowledges nothing.
func TestLane_StoppedInTransactionFreesItsBucketsAndCommitsNothing_N1(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	at := stepLocked
	sleeper := startChild(t, childConfig{DatabaseURL: url, Config: laneConfig(t, broker, "sleeper"), StopAt: &at})
	sleeper.waitReady()
	c := device(t, broker, name(t)+"-device")
	topic := "hubs/" + name(t) + "/devices/d/state"
	publishAll(t, c, topic, 1, seqs(1, 50)...)
	sleeper.waitStopped()
	stopped := time.Now()

	admin := openAdmin(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := admin.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, outbox.LockClass, int32(outbox.Bucket("d", testenv.Settings().Buckets))); err != nil {
		t.Fatal(err)
	}
	if held := time.Since(stopped); held > 6*time.Second {
		t.Errorf("the bucket was held for %v, want at most 6s", held)
	}

	standby := startRig(t, url, broker, func(c *Config) { *c = laneConfig(t, broker, "standby") })
	standby.count(50, `SELECT applied FROM ingest_lane`)
	sleeper.signal(syscall.SIGCONT)
	publishAll(t, c, topic, 1, seqs(51, 100)...)
	standby.count(100, `SELECT applied FROM ingest_lane`)
	standby.count(100, `SELECT count(*) FROM outbox`)
	standby.count(100, `SELECT count(DISTINCT sequence) FROM outbox`)
	standby.count(0, `SELECT duplicate + late + quarantined FROM ingest_lane`)
	standby.count(1, `SELECT count(*) FROM ingest_lane WHERE owner = 'standby' AND term = 2`)
}

// kill -9 of the owner: the standby goes on within the lease and a little, and nothing is lost or stored twice.
func TestLane_StandbyTakesOverFromAKilledOwnerWithinTheLease(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	owner := startChild(t, childConfig{DatabaseURL: url, Config: laneConfig(t, broker, "owner")})
	owner.waitReady()
	standby := startRig(t, url, broker, func(c *Config) { *c = laneConfig(t, broker, "standby") })
	c := device(t, broker, name(t)+"-device")
	for d := range 20 {
		publishAll(t, c, fmt.Sprintf("hubs/%s/devices/d%d/state", name(t), d), 1, seqs(1, 20)...)
	}
	owner.kill()
	killed := time.Now()
	standby.waitReady()
	if took := time.Since(killed); took > 2*time.Second+8*time.Second { // lease, then poll, connect and a loaded machine
		t.Errorf("takeover after %v with a lease of 2s", took)
	}
	for d := range 20 {
		publishAll(t, c, fmt.Sprintf("hubs/%s/devices/d%d/state", name(t), d), 1, seqs(21, 40)...)
	}
	standby.count(800, `SELECT applied FROM ingest_lane`)
	standby.count(800, `SELECT count(*) FROM outbox`)
	standby.count(20, `SELECT count(*) FROM device_state WHERE sequence = 40 AND counter = 40 AND missed = 0`)
}

// While two instances live, the standby never connects: the broker would end the owner's connection.
func TestLane_TwoInstancesNeverFightOverOneClientID(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	first := startRig(t, url, broker, func(c *Config) { *c = laneConfig(t, broker, "a") })
	first.waitReady()
	second := startRig(t, url, broker, func(c *Config) { *c = laneConfig(t, broker, "b") })
	time.Sleep(3 * time.Second) // longer than the lease, to see that nothing happens
	if err := second.service.Ready(); err == nil {
		t.Error("both are connected")
	}
	first.count(1, `SELECT count(*) FROM ingest_lane WHERE owner = 'a' AND term = 1`)
	released := time.Now()
	first.stop()
	second.waitReady()
	if took := time.Since(released); took > 8*time.Second {
		t.Errorf("takeover after an orderly stop took %v", took)
	}
}

// A term that is not the lane's changes nothing, whatever it tries.
func TestLane_StaleTermChangesNothing_N1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stale := b.writer
	staleGen := b.gen
	items := []item{b.message("hubs/h/devices/d/state", `{"seq":1,"state":{}}`)}
	b.claim("lane-0")
	for what, err := range map[string]error{
		"renew": stale.lane.renew(t.Context()), "subscribed": stale.lane.subscribed(t.Context(), []string{"x"}),
		"store": stale.store(t.Context(), items),
	} {
		if err == nil {
			t.Errorf("%s worked under a stale term", what)
		}
	}
	if err := stale.lane.release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if n := query[int](b, `SELECT count(*) FROM outbox`); n != 0 {
		t.Errorf("%d events of a stale term", n)
	}
	if owner := query[string](b, `SELECT owner FROM ingest_lane WHERE lane = 'lane-0'`); owner != "test" {
		t.Errorf("a stale release cleared the owner")
	}
	if staleGen.acked != 0 {
		t.Errorf("%d acks of a stale term", staleGen.acked)
	}
}
