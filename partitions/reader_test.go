package partitions

import (
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
)

// pyarrow reads an archive with a library that shares no code with ours, and computes the same numbers again.
const pyarrow = `
import hashlib, json, sys
import pyarrow.parquet as pq
path = sys.argv[1]
t = pq.read_table(path)
payload = hashlib.sha256()
for v in t["payload"].to_pylist():
    payload.update(v)
json.dump({
    "rows": t.num_rows,
    "sha256": hashlib.sha256(open(path, "rb").read()).hexdigest(),
    "payloads": payload.hexdigest(),
    "positions": sum(t["position"].to_pylist()),
    "codecs": sorted({pq.ParquetFile(path).metadata.row_group(0).column(i).compression for i in range(t.num_columns)}),
    "types": {f.name: str(f.type) for f in t.schema},
    "first": {k: str(v) for k, v in t.slice(0, 1).to_pylist()[0].items() if k != "payload"},
}, sys.stdout)
`

// duckdb computes the numbers by SQL over the file as it is.
const duckdb = `
import duckdb, json, sys
row = duckdb.sql(f"""SELECT count(*), sum(position)::BIGINT, count(DISTINCT message_id), min(occurred_at)::VARCHAR, typeof(any_value(created_at)), sum(octet_length(payload))::BIGINT
  FROM '{sys.argv[1]}'""").fetchall()[0]
json.dump(dict(zip(["rows", "positions", "ids", "occurred", "type", "bytes"], row)), sys.stdout)
`

// TestArchive_IsReadByDuckDB runs where python3 has duckdb (pip install duckdb).
func TestArchive_IsReadByDuckDB(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import duckdb").Run(); err != nil {
		t.Skipf("python3 with duckdb: %v", err)
	}
	f := setup(t)
	first := f.sealed(300)
	f.turn(f.config())
	out, err := exec.CommandContext(t.Context(), "python3", "-c", duckdb, filepath.Join(string(f.dir), dataName(first))).Output()
	if err != nil {
		t.Fatalf("duckdb: %v: %s", err, stderr(err))
	}
	var got struct {
		Rows, Positions, IDs, Bytes int64
		Occurred, Type              string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Rows != 300 || got.Positions != f.query(`SELECT sum(position)::bigint FROM `+first) || got.IDs != f.query(`SELECT count(DISTINCT message_id) FROM `+first) ||
		got.Bytes != f.query(`SELECT sum(length(payload))::bigint FROM `+first) || got.Type != "TIMESTAMP WITH TIME ZONE" {
		t.Errorf("DuckDB reads %+v", got)
	}
}

// TestArchive_IsReadByPyarrow runs where python3 has pyarrow (pip install pyarrow).
func TestArchive_IsReadByPyarrow(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import pyarrow.parquet").Run(); err != nil {
		t.Skipf("python3 with pyarrow: %v", err)
	}
	f := setup(t)
	first := f.sealed(300)
	f.turn(f.config())
	out, err := exec.CommandContext(t.Context(), "python3", "-c", pyarrow, filepath.Join(string(f.dir), dataName(first))).Output()
	if err != nil {
		t.Fatalf("pyarrow: %v: %s", err, stderr(err))
	}
	var got struct {
		Rows, Positions  int64
		SHA256, Payloads string
		Codecs           []string
		Types, First     map[string]string
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	man, err := Verify(t.Context(), f.dir, first)
	if err != nil {
		t.Fatal(err)
	}
	var payloads string
	if err := f.conn.QueryRow(t.Context(), `SELECT encode(sha256(string_agg(payload, ''::bytea ORDER BY position)), 'hex') FROM `+first).Scan(&payloads); err != nil {
		t.Fatal(err)
	}
	if got.Rows != 300 || got.Rows != man.Rows || got.SHA256 != man.SHA256 || got.Payloads != payloads ||
		got.Positions != f.query(`SELECT sum(position)::bigint FROM `+first) {
		t.Errorf("pyarrow reads %+v, the manifest says %d rows and %s, the table payloads %s", got, man.Rows, man.SHA256, payloads)
	}
	if len(got.Codecs) != 1 || got.Codecs[0] != "ZSTD" {
		t.Errorf("compressed with %v, want ZSTD", got.Codecs)
	}
	for name, want := range map[string]string{"position": "int64", "bucket": "int16", "message_id": "string", "payload": "binary", "created_at": "timestamp[us, tz=UTC]"} {
		if got.Types[name] != want {
			t.Errorf("column %s is %s, want %s", name, got.Types[name], want)
		}
	}
	if got.First["occurred_at"] != "2026-03-01 10:00:00.123456+00:00" {
		t.Errorf("occurred_at of the first row is %s", got.First["occurred_at"])
	}
}

func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}
