package partitions

import (
	"slices"
	"testing"
)

// phases lists the phases of the partitions in order.
func phases(s State) (list []Phase) {
	for _, p := range s.Partitions {
		list = append(list, p.Phase)
	}
	return list
}

func (f *fixture) devices(n int) []string {
	var names []string
	for i := range n {
		names = append(names, "device-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	return names
}

func TestLife_AheadLiveSealedArchivedDropped(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	writer := f.connect("hubstate_ingest")

	f.turn(cfg)
	if got, want := phases(f.state()), []Phase{Live, Live, Live, Ahead, Ahead}; !slices.Equal(got[:5], want) {
		t.Fatalf("after the first turn: %v, want %v first", got, want)
	}
	first := f.state().Partitions[0]
	f.write(writer, f.devices(100)...)

	f.clock.forward(step)
	f.turn(cfg)
	if p := f.find(first.Name); p.Place != Attached || p.Phase != Live {
		t.Fatalf("ended but unpublished: %s %s, want it attached and live", p.Place, p.Phase)
	}

	f.drain()
	f.turn(cfg)
	p := f.find(first.Name)
	if p.Phase != Archived || p.Place != History || p.Rows == nil || *p.Rows != 100 || p.Bytes == 0 || p.SHA256 == "" {
		t.Fatalf("drained: %+v, want it archived, in the history, with 100 rows", p)
	}
	if n := f.query(`SELECT count(*) FROM outbox`) + 1000*f.query(`SELECT count(*) FROM outbox_history`); n != 100_000 {
		t.Fatalf("outbox + 1000 × history = %d rows, want all 100 in the history", n)
	}
	f.write(writer, "device-aa")
	if f.state().Floor.Before(first.To) || f.query(`SELECT count(*) FROM outbox WHERE created_at < $1`, first.To) != 0 {
		t.Fatal("a row was created below the floor")
	}

	f.clock.forward(cfg.RetainSent + step)
	f.turn(cfg)
	if n := f.query(`SELECT count(*) FROM pg_class WHERE relname = $1`, first.Name); n != 0 {
		t.Fatalf("%s is kept beyond its time", first.Name)
	}
	if n := f.query(`SELECT count(*) FROM partition_ledger WHERE name = $1 AND phase = 'dropped' AND rows = 100 AND
		attached_at < sealed_at AND sealed_at < archived_at AND archived_at < dropped_at`, first.Name); n != 1 {
		t.Fatal("the ledger does not tell the whole life")
	}
	if _, err := Verify(t.Context(), f.dir, first.Name); err != nil {
		t.Fatalf("the archive outlives the table: %v", err)
	}
}

func (f *fixture) find(name string) Partition {
	f.Helper()
	state := f.state()
	i := slices.IndexFunc(state.Partitions, func(p Partition) bool { return p.Name == name })
	if i < 0 {
		f.Fatalf("no partition %s", name)
	}
	return state.Partitions[i]
}
