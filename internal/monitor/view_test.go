package monitor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/devicestate/consumer"
	"github.com/hubstate/hubstate/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is one view of its own with a clock that stands at noon.
type bench struct {
	*View
	t    testing.TB
	next int64
}

func newBench(t testing.TB) *bench {
	t.Helper()
	opts, err := redis.ParseURL(testenv.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { _ = rdb.Close() })
	profile := devicestate.Profile{Streams: map[string]devicestate.StreamPolicy{
		"state":      {Expect: 30 * time.Second},
		"slow":       {Expect: time.Hour},
		"connection": {Kind: devicestate.KindConnection},
	}}
	e, _ := NewExpectations([]devicestate.Profile{profile})
	v := NewView(rdb, uuid.NewString(), e)
	v.now = func() time.Time { return noon }
	return &bench{View: v, t: t}
}

// event is a live report of device d1 in hub h1 received at `received`, changed by edit.
func event(sequence int64, received time.Time, edit ...func(*consumer.Delivery)) *consumer.Delivery {
	d := &consumer.Delivery{Event: devicestate.Event{
		MessageID: uuid.New(), Device: "d1", Hub: "h1", Stream: "state", Epoch: 1, Sequence: sequence,
		ReceivedAt: received, State: []byte(`{"v":1}`),
	}, Timestamp: received}
	for _, e := range edit {
		e(d)
	}
	return d
}

func device(id string) func(*consumer.Delivery) {
	return func(d *consumer.Delivery) { d.Event.Device = id }
}
func hub(id string) func(*consumer.Delivery) { return func(d *consumer.Delivery) { d.Event.Hub = id } }
func stream(s string) func(*consumer.Delivery) {
	return func(d *consumer.Delivery) { d.Event.Stream = s }
}
func epoch(n int64) func(*consumer.Delivery) { return func(d *consumer.Delivery) { d.Event.Epoch = n } }
func marks(m devicestate.Marks) func(*consumer.Delivery) {
	return func(d *consumer.Delivery) { d.Event.Marks = m }
}
func state(s string) func(*consumer.Delivery) {
	return func(d *consumer.Delivery) { d.Event.State = []byte(s) }
}
func missed(n int64) func(*consumer.Delivery) {
	return func(d *consumer.Delivery) { d.Event.Missed = n }
}
func skips(header string) func(*consumer.Delivery) {
	return func(d *consumer.Delivery) { d.Skips, _ = devicestate.ParseSkips(header) }
}

// apply stores a batch of partition 0 and returns its verdicts.
func (b *bench) apply(ds ...*consumer.Delivery) []devicestate.Outcome {
	b.t.Helper()
	for _, d := range ds {
		d.Value = devicestate.AppendEvent(nil, &d.Event)
	}
	b.next += int64(len(ds))
	batch := &consumer.Batch{Partition: 0, Next: b.next, Confirmed: consumer.Unknown, Deliveries: ds}
	if err := b.Process(b.t.Context(), batch, nil); err != nil {
		b.t.Fatal(err)
	}
	var out []devicestate.Outcome
	for _, d := range ds {
		out = append(out, d.Verdict.Outcome)
	}
	return out
}

func (b *bench) hub(id string, asOf time.Time) Hub {
	b.t.Helper()
	hubs := []Hub{{ID: id}}
	if err := b.Summarize(b.t.Context(), hubs, Question{AsOf: asOf, Now: noon, Cells: 20, SilentPercent: 50}); err != nil {
		b.t.Fatal(err)
	}
	return hubs[0]
}

func (b *bench) device(id string) Device {
	b.t.Helper()
	d, ok, err := b.Device(b.t.Context(), id, Question{AsOf: noon, Now: noon})
	if err != nil || !ok {
		b.t.Fatalf("device %s: %v %v", id, ok, err)
	}
	return d
}

func TestView_AppliesAnEventOnceAndNeverGoesBack_C1(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	got := b.apply(event(5, ago(50*time.Second)), event(6, ago(9*time.Second)), event(6, ago(8*time.Second)), event(5, ago(1)), event(7, ago(7*time.Second)))
	want := []devicestate.Outcome{devicestate.Baseline, devicestate.Apply, devicestate.Again, devicestate.Old, devicestate.Apply}
	if !slices.Equal(got, want) {
		t.Fatalf("verdicts %v, want %v", got, want)
	}
	before := b.device("d1")
	b.apply(event(5, ago(1)), event(6, ago(1)), event(7, ago(1)))
	after := b.device("d1")
	if s := after.Streams[0]; s.Sequence != 7 || !s.LiveAt.Equal(before.Streams[0].LiveAt) || !s.LiveAt.Equal(ago(7*time.Second)) {
		t.Fatalf("%+v", s)
	}
	if h := b.hub("h1", noon); h.Totals.Events != 3 || h.Counts.Devices != 1 {
		t.Fatalf("counted twice: %+v %+v", h.Totals, h.Counts)
	}
}

func TestView_RetainedCopiesAndReplaysMakeNothingFresh(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(event(1, ago(0), device("copy"), marks(devicestate.MarkRetained)))
	b.apply(event(1, ago(time.Hour), device("old")))
	b.apply(event(2, ago(0), device("old"), marks(devicestate.MarkRetained)))
	b.apply(event(3, ago(2*time.Hour), device("old"))) // a backlog, published late: its own receive time counts
	if d := b.device("copy"); d.Status != NeverSeen || !d.LiveAt.IsZero() {
		t.Errorf("a retained copy made a device fresh: %+v", d.Row)
	}
	if d := b.device("old"); d.Status != Silent || !d.LiveAt.Equal(ago(time.Hour)) {
		t.Errorf("a retained copy or a backlog moved freshness: %+v", d.Row)
	}
	if h := b.hub("h1", noon); h.Counts.NeverSeen != 1 || h.Counts.Silent != 1 {
		t.Errorf("%+v", h.Counts)
	}
}

func TestView_ShowsWhichNumbersWereLostAndWhichWereLeftOut_C2(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(event(1, ago(9)))
	b.apply(event(10, ago(8), skips("2-9:superseded")))
	b.apply(event(12, ago(7), skips("11:dead")))
	if h := b.hub("h1", noon); h.Totals.Lost != 0 {
		t.Fatalf("a policy was taken for a loss: %+v", h.Totals)
	}
	b.apply(event(20, ago(6), skips("14-15:superseded,17:dead")))
	b.apply(event(20, ago(6), skips("14-15:superseded,17:dead"))) // said again
	b.apply(event(3, ago(5), epoch(2)))                           // a new epoch begins anywhere
	losses, err := b.Losses(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	var ranges []string
	for _, l := range losses {
		if l.Device != "d1" || l.Hub != "h1" || l.Stream != "state" || l.Epoch != 1 {
			t.Errorf("%+v", l)
		}
		ranges = append(ranges, l.Range)
	}
	slices.Sort(ranges)
	if want := []string{"13-13", "16-16", "18-19"}; !slices.Equal(ranges, want) {
		t.Errorf("lost %v, want %v", ranges, want)
	}
	if h := b.hub("h1", noon); h.Totals.Lost != 4 {
		t.Errorf("lost %d, want 4", h.Totals.Lost)
	}
	d := b.device("d1")
	if what := d.Timeline[1].What; !slices.Contains(what, "lost 16-16") {
		t.Errorf("timeline %v", what)
	}
	if what := d.Timeline[0].What; !slices.Contains(what, "new epoch") {
		t.Errorf("timeline %v", what)
	}
}

func TestView_ConnectedButSilentIsToldByTheConnectionStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	online, offline := state(`{"connectionState":"ONLINE"}`), state(`{"connectionState":"OFFLINE"}`)
	for _, id := range []string{"a", "b", "c"} {
		b.apply(event(1, ago(time.Hour), device(id)), event(1, ago(time.Hour), device(id), stream("connection"), online))
	}
	b.apply(event(2, ago(1), device("b"), stream("connection"), offline))
	b.apply(event(2, ago(1), device("c")))
	if h := b.hub("h1", noon); h.Counts != (Counts{Devices: 3, Fresh: 1, Silent: 1, ConnectedSilent: 1}) {
		t.Errorf("%+v", h.Counts)
	}
	for id, want := range map[string]Status{"a": ConnectedSilent, "b": Silent, "c": Fresh} {
		if d := b.device(id); d.Status != want {
			t.Errorf("%s: %s, want %s", id, d.Status, want)
		}
	}
}

func TestView_TimelineTellsWhenADeviceWentAndCameBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	online, offline := state(`{"connectionState":"ONLINE"}`), state(`{"connectionState":"OFFLINE"}`)
	for i, what := range []func(*consumer.Delivery){online, offline, offline, online} {
		b.apply(event(int64(i+1), ago(time.Duration(10-i)*time.Second), stream("connection"), what))
	}
	var told []string
	for _, n := range b.device("d1").Timeline {
		told = append(told, n.What...)
	}
	if want := []string{"connected", "disconnected"}; !slices.Equal(told, want) {
		t.Errorf("the timeline says %v, newest first; want %v: its first connection is no change", told, want)
	}
}

func TestView_HubIsSilentSinceTheDeviceThatTippedIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 10 {
		b.apply(event(1, ago(time.Duration(i)*time.Minute), device(fmt.Sprint("d", i))))
	}
	// Due 30 s after its last report: d9 to d1 are overdue, the first since 8m30s, half of the ten since d5's 4m30s.
	h := b.hub("h1", noon)
	if h.Counts.Silent != 9 || !h.FirstSilentAt.Equal(ago(8*time.Minute+30*time.Second)) || !h.SilentSince.Equal(ago(4*time.Minute+30*time.Second)) {
		t.Errorf("%+v first %v since %v", h.Counts, noon.Sub(h.FirstSilentAt), noon.Sub(h.SilentSince))
	}
	if h := b.hub("h1", ago(5*time.Minute)); !h.SilentSince.IsZero() || h.Counts.Silent != 4 || h.Counts.Unknown != 5 {
		t.Errorf("as of five minutes ago: %+v since %v", h.Counts, h.SilentSince)
	}
}

func TestView_GapsAndClockAreCountedByHubAndFollowAMove(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(event(1, ago(9), missed(3)), event(2, ago(8), missed(7), marks(devicestate.MarkClockSuspect)))
	if h := b.hub("h1", noon); h.Totals.Missed != 7 || h.Counts.ClockSuspect != 1 {
		t.Errorf("%+v %+v", h.Totals, h.Counts)
	}
	if d := b.device("d1"); !d.ClockSuspect || d.Missed != 7 || d.Status != Fresh {
		t.Errorf("%+v", d.Row)
	}
	b.apply(event(3, ago(7), hub("h2"), missed(7), marks(devicestate.MarkClockSuspect)))
	if h := b.hub("h1", noon); h.Counts != (Counts{}) {
		t.Errorf("the old hub still has %+v", h.Counts)
	}
	if h := b.hub("h2", noon); h.Counts.Devices != 1 || h.Counts.ClockSuspect != 1 {
		t.Errorf("the new hub has %+v", h.Counts)
	}
	b.apply(event(4, ago(6), hub("h2"), missed(7)))
	if h := b.hub("h2", noon); h.Counts.ClockSuspect != 0 {
		t.Errorf("the clock is right again, yet %+v", h.Counts)
	}
}

// A clock that is behind cannot be told from an old report by one event; it can by many.
func TestView_AClockThatStaysBehindIsSuspectAndABacklogIsNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	late := func(by time.Duration) func(*consumer.Delivery) {
		return func(d *consumer.Delivery) { d.Event.OccurredAt = d.Event.ReceivedAt.Add(-by) }
	}
	for i := range int64(8) { // a report each ten seconds
		at := ago(time.Duration(80-10*i) * time.Second)
		b.apply(event(i+1, at, device("slow"), late(20*365*24*time.Hour)), event(i+1, at, device("right"), late(time.Second)))
		b.apply(event(i+1, at, device("buffer"), late(time.Duration(70-10*i)*time.Minute))) // catches up with the present
	}
	for id, want := range map[string]bool{"slow": true, "right": false, "buffer": false} {
		if d := b.device(id); d.ClockSuspect != want || d.Status != Fresh {
			t.Errorf("%s: clock suspect %v, %s", id, d.ClockSuspect, d.Status)
		}
	}
	d := b.device("slow")
	if len(d.Timeline) != 1 || !slices.Equal(d.Timeline[0].What, []string{"clock_suspect"}) {
		t.Errorf("told more than once: %+v", d.Timeline)
	}
	b.apply(event(9, ago(0), device("slow"), late(time.Second)))
	if d := b.device("slow"); d.ClockSuspect || !slices.Equal(d.Timeline[0].What, []string{"clock_right"}) {
		t.Errorf("the clock was set, yet %+v", d.Timeline)
	}
	if h := b.hub("h1", noon); h.Counts.ClockSuspect != 0 {
		t.Errorf("%+v", h.Counts)
	}
}

func TestView_NoticesThatItWasFlushed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(event(1, ago(9)))
	if err := b.rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	batch := &consumer.Batch{Partition: 0, Next: 2, Confirmed: 1, Deliveries: []*consumer.Delivery{event(2, ago(8))}}
	err := b.Process(t.Context(), batch, nil)
	var behind *consumer.BehindError
	if !errors.As(err, &behind) || behind.Stored != consumer.Unknown {
		t.Fatalf("%v", err)
	}
	resume, err := b.Resume(t.Context(), "", map[int32]int64{0: 7})
	if err != nil || resume[0].Offset != consumer.Earliest {
		t.Fatalf("a flushed view must be read from the start: %+v %v", resume, err)
	}
}

func TestView_GoesOnAtTheLowerOfBothOffsets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.apply(event(1, ago(9)), event(2, ago(8)), event(3, ago(7)))
	resume, err := b.Resume(t.Context(), "", map[int32]int64{0: 2, 1: 9, 2: consumer.Unknown})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int32]consumer.Resume{0: {Offset: 2, Confirmed: 3}, 1: {Offset: consumer.Earliest, Confirmed: consumer.Unknown}, 2: {Offset: consumer.Unknown, Confirmed: consumer.Unknown}}
	for p, r := range want {
		if resume[p] != r {
			t.Errorf("partition %d: %+v, want %+v", p, resume[p], r)
		}
	}
}

func TestView_SearchFindsBeginningsFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"acme/agv-7", "agv-7", "agv-70", "x-agv-7", "a*v-7"} {
		b.apply(event(1, ago(9), device(id)))
	}
	found, err := b.Search(t.Context(), "agv-7", 10)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found[:2], []string{"agv-7", "agv-70"}) || len(found) != 4 {
		t.Errorf("%v", found)
	}
	if found, _ := b.Search(t.Context(), "a*v", 10); !slices.Equal(found, []string{"a*v-7"}) {
		t.Errorf("a star is no wildcard: %v", found)
	}
}

// The counts that Redis makes must be what Judge says of each device, whatever the order in which events came.
func TestView_CountsAgreeWithTheRules(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	b := newBench(t)
	type dev struct {
		signs    map[string]Sign
		link     Link
		position map[string]int64
	}
	model := map[string]*dev{}
	streams := []string{"state", "slow", "connection"}
	for range 40 {
		var batch []*consumer.Delivery
		for range 25 {
			id, s := fmt.Sprint("d", r.IntN(30)), streams[r.IntN(3)]
			d := model[id]
			if d == nil {
				d = &dev{signs: map[string]Sign{}, position: map[string]int64{}}
				model[id] = d
			}
			received, retained, up := ago(time.Duration(r.IntN(7200))*time.Second), r.IntN(4) == 0, r.IntN(2) == 0
			sequence := max(1, d.position[s]+int64(r.IntN(4))-1) // sometimes old, again, next or a hole
			e := event(sequence, received, device(id), stream(s))
			if retained {
				e.Event.Marks |= devicestate.MarkRetained
			}
			if s == "connection" {
				e.Event.State = fmt.Appendf(nil, `{"connected":%v}`, up)
			}
			batch = append(batch, e)
			if sequence <= d.position[s] {
				continue
			}
			d.position[s] = sequence
			x := b.expect.Of(s)
			sign := Sign{LiveAt: d.signs[s].LiveAt, Expect: x.Silent}
			if !retained {
				sign.LiveAt = Live(sign.LiveAt, received, noon)
			}
			d.signs[s] = sign
			if x.Connection {
				d.link = map[bool]Link{true: LinkUp, false: LinkDown}[up]
			}
		}
		b.apply(batch...)
	}
	for _, asOf := range []time.Time{noon, ago(10 * time.Minute), ago(3 * time.Hour)} {
		want := Counts{}
		for id, d := range model {
			var signs []Sign
			for _, s := range d.signs {
				signs = append(signs, s)
			}
			status := Judge(Due(signs), d.link, asOf, noon)
			want.Devices++
			*map[Status]*int64{Fresh: &want.Fresh, Silent: &want.Silent, ConnectedSilent: &want.ConnectedSilent, NeverSeen: &want.NeverSeen, Unknown: &want.Unknown}[status]++
			rows, err := b.Rows(t.Context(), []string{id}, Question{AsOf: asOf, Now: noon})
			if err != nil || rows[0].Status != status {
				t.Fatalf("seed %d: %s as of %v is %v, want %s (%v)", seed, id, noon.Sub(asOf), rows, status, err)
			}
		}
		if got := b.hub("h1", asOf).Counts; got != want {
			t.Fatalf("seed %d, as of %v ago:\n got %+v\nwant %+v", seed, noon.Sub(asOf), got, want)
		}
	}
}
