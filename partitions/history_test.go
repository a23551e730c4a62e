package partitions

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestHistory_OneQueryTellsWhatADeviceSentThatDay, as a reader, by an index, opening that day's table only.
func TestHistory_OneQueryTellsWhatADeviceSentThatDay(t *testing.T) {
	t.Parallel()
	f := setup(t)
	cfg := f.config()
	cfg.Store = nil
	f.turn(cfg)
	writer := f.connect("hubstate_ingest")
	var days []Partition
	for range 3 {
		days = append(days, f.state().Partitions[len(days)])
		f.write(writer, f.devices(60)...)
		f.drain()
		f.exec(`UPDATE partition_spec SET floor = greatest(floor, $1)`, days[len(days)-1].To)
		f.clock.forward(step)
		f.turn(cfg)
	}
	reader := f.connect("hubstate_reader")
	if _, err := reader.Exec(t.Context(), `SET enable_seqscan = off`); err != nil { // the tables of a test are too small for an index
		t.Fatal(err)
	}
	const query = `SELECT position, payload, dead_state FROM outbox_history WHERE aggregate_id = 'device-aa' AND created_at >= $1 AND created_at < $2`
	rows, err := reader.Query(t.Context(), query, days[1].From, days[1].To)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := pgx.CollectRows(rows, pgx.RowToMap); err != nil || len(got) != 1 {
		t.Fatalf("%d events of the device that day, %v; want 1", len(got), err)
	}
	plan := explain(t, reader, query, days[1].From, days[1].To)
	if !strings.Contains(plan, days[1].Name+"_aggregate_id_created_at_idx") {
		t.Errorf("no index of the day serves the query:\n%s", plan)
	}
	for _, other := range []string{days[0].Name, days[2].Name} {
		if strings.Contains(plan, other) {
			t.Errorf("the query opens %s too:\n%s", other, plan)
		}
	}
}

func explain(t *testing.T, conn *pgx.Conn, query string, from, to time.Time) string {
	t.Helper()
	for i, at := range []time.Time{from, to} {
		query = strings.ReplaceAll(query, []string{"$1", "$2"}[i], "'"+instant(at)+"'")
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN "+query)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
