package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/twmb/franz-go/pkg/kfake"
)

// A history is a list of steps drawn from a seed. It is executed on a real PostgreSQL and an in-process Kafka with
// injected faults, against a small model: what was committed, and what the operator was told.
//
//	HUBSTATE_MODEL_SEED=n      runs that history only
//	HUBSTATE_MODEL_RUNS=n      how many histories (default 4)
//	HUBSTATE_MODEL_STEPS=n     steps of each (default 60)

type step struct {
	kind stepKind
	a, b int
}

func (s step) String() string { return fmt.Sprintf("%s(%d,%d)", stepNames[s.kind], s.a, s.b) }

type stepKind int

const (
	stepAppend stepKind = iota
	stepOpenSlow
	stepCloseSlow
	stepStart
	stepStop
	stepCrash
	stepFreeze
	stepThaw
	stepRefuse
	stepTimeOut
	stepDisconnect
	stepNotLeader
	stepPoison
	stepDiscard
	stepPause
	numSteps
)

var stepNames = [numSteps]string{"append", "open-slow", "close-slow", "start", "stop", "crash", "freeze", "thaw", "refuse", "time-out", "disconnect", "not-leader", "poison", "discard", "pause"}

// weights make histories that flow: faults are rarer than rows.
var weights = [numSteps]int{20, 5, 6, 7, 2, 4, 5, 5, 4, 3, 3, 2, 2, 2, 10}

func draw(rng *rand.Rand, n int) []step {
	total := 0
	for _, w := range weights {
		total += w
	}
	steps := make([]step, 0, n)
	for range n {
		at := rng.IntN(total)
		kind := stepKind(0)
		for at >= weights[kind] {
			at -= weights[kind]
			kind++
		}
		steps = append(steps, step{kind: kind, a: rng.IntN(1 << 16), b: rng.IntN(1 << 16)})
	}
	return steps
}

func envInt(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

func TestModel_RandomHistoriesKeepTheOutboxPromises_O1_O2_O3_O4_O5_O6(t *testing.T) {
	t.Parallel()
	if seed := envInt("HUBSTATE_MODEL_SEED", 0); seed != 0 {
		runHistory(t, uint64(seed))
		return
	}
	for range envInt("HUBSTATE_MODEL_RUNS", 4) {
		seed := rand.Uint64() >> 33
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			runHistory(t, seed)
		})
	}
}

// runHistory fails the test with the seed and the steps when a promise is broken.
func runHistory(t *testing.T, seed uint64) {
	if steps, err := history(t, seed); err != nil {
		t.Fatalf("seed %d: %v\nHUBSTATE_MODEL_SEED=%d after %d steps:\n%v", seed, err, seed, len(steps), steps)
	}
}

// history executes the steps of a seed up to the first broken promise.
func history(t *testing.T, seed uint64) ([]step, error) {
	steps := draw(rand.New(rand.NewPCG(seed, 1)), envInt("HUBSTATE_MODEL_STEPS", 60))
	w := newWorld(t)
	defer w.close()
	for i, s := range steps {
		w.do(s)
		if err := w.check(); err != nil {
			return steps[:i+1], err
		}
	}
	err := w.settle()
	t.Logf("seed %d: %d records for %d rows, %d relays", seed, len(w.seen.positions), w.rows(), w.started)
	return steps, err
}

// modelBuckets and modelPartitions are few, so that devices meet in buckets and buckets in partitions.
const (
	modelBuckets    = 8
	modelPartitions = 4
	modelDevices    = 12
)

func newWorld(t *testing.T) *world {
	cluster := testenv.FakeKafka(t, kfake.SeedTopics(modelPartitions, "model"))
	b := setupFake(t, cluster.ListenAddrs())
	b.topic, b.cfg.Topic, b.cfg.Buckets, b.cfg.TopicPartitions = "model", "model", modelBuckets, modelPartitions
	b.cfg.TTL, b.cfg.Renew, b.cfg.Margin, b.cfg.HandOver = time.Second, 100*time.Millisecond, 200*time.Millisecond, 300*time.Millisecond
	b.admin(`DELETE FROM outbox_bucket WHERE bucket >= $1`, modelBuckets)
	b.admin(`CREATE TABLE model_device (device text PRIMARY KEY, sequence bigint NOT NULL)`)
	b.admin(`GRANT ALL ON model_device TO hubstate_ingest`)
	for d := range modelDevices {
		b.admin(`INSERT INTO model_device VALUES ($1, 0)`, "d"+strconv.Itoa(d))
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &world{b: b, t: t, kafka: cluster, ctx: ctx, cancel: cancel, seen: newTopicModel(b), cursors: make(map[int][2]int64)}
}
