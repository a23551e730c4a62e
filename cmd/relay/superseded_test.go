package main

import (
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
)

// TestSuperseded_LivesAsLongAsItsRows: a forgotten range is kept, goes with the last partition that could hold its rows,
// and leaves nothing of an erased device.
func TestSuperseded_LivesAsLongAsItsRows(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	conn := connect(t, url)
	appendEvents(t, conn, event{device: "d1", sequence: 1}, event{device: "d2", sequence: 1})
	exec(t, conn, "UPDATE outbox_bucket b SET cursor = o.position FROM outbox o WHERE o.bucket = b.bucket")
	skip := func(device string, from int) {
		exec(t, conn, `INSERT INTO outbox_skipped (bucket, aggregate_id, stream, epoch, from_sequence, to_sequence, reason, up_to)
			VALUES ($1, $2, 'state', 1, $3, $3, 'superseded', 0), ($1, $2, 'state', 1, $3 + 1, $3 + 1, 'dead', 0)`, bucketOf(device), device, from)
	}
	expect := func(what, want string) {
		t.Helper()
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(string_agg(aggregate_id || '/' || from_sequence, ' ' ORDER BY aggregate_id, from_sequence), '') FROM outbox_superseded").Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", what, got, err, want)
		}
	}
	skip("d1", 1)
	skip("d2", 1)
	exec(t, conn, "DELETE FROM outbox_skipped")
	expect("forgotten", "d1/1 d2/1")

	exec(t, conn, "UPDATE outbox_superseded SET created_at = '2020-01-01' WHERE aggregate_id = 'd2'") // older than any partition
	skip("d1", 5)
	exec(t, conn, "DELETE FROM outbox_skipped")
	expect("its partitions are gone", "d1/1 d1/5")

	skip("d1", 9) // still waits when the device is erased
	must(t, "erase", "d1", "--database-url", url, "--reason", "asked to", "--yes")
	expect("erased", "")
}
