package partitions

import (
	"testing"
)

// BenchmarkArchive writes and reads back one partition of 200,000 events of 344 bytes with random content.
func BenchmarkArchive(b *testing.B) {
	const rows = 200_000
	f := setup(b)
	cfg := f.config()
	cfg.Store = nil
	f.turn(cfg)
	first := f.state().Partitions[0]
	f.exec(`INSERT INTO outbox SELECT i, i % 64, gen_random_uuid(), 'device', 'device-' || i % 20000, 'DeviceStateChanged', 1, 'state', 1, i / 20000, '/hubs/north',
		'00-' || md5(i::text) || '-' || left(md5((-i)::text), 16) || '-01', NULL, NULL,
		(SELECT string_agg(sha256((i * 20 + j)::text::bytea), '') FROM generate_series(1, 10) j) || '\x000102030405060708090a0b'::bytea,
		now(), $1::timestamptz + make_interval(secs => i / 10.0) FROM generate_series(1, $2::int) i`, first.From, rows)
	f.drain()
	f.clock.forward(step)
	f.turn(cfg)
	cfg.Store = f.dir
	m := f.manager(cfg)
	if err := m.connect(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer m.disconnect(b.Context())
	var man *Manifest
	b.ReportAllocs()
	for b.Loop() {
		f.exec(`UPDATE partition_ledger SET phase = 'sealed' WHERE name = $1`, first.Name)
		if err := m.archive(b.Context(), Action{Kind: Archive, Partition: first.Name, From: first.From, To: first.To}); err != nil {
			b.Fatal(err)
		}
	}
	man, err := Verify(b.Context(), f.dir, first.Name)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(man.Bytes)/rows, "file-bytes/row")
}
