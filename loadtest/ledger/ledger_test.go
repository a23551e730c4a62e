package ledger

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func sample() *Ledger {
	s := &Stream{Device: "d-000001", Hub: "hub-1", Name: "state"}
	l := New("test", 9, time.Date(2026, 12, 1, 4, 0, 0, 0, time.UTC), []*Stream{s})
	s.Append(Report{Counter: 1, Boot: 1, Due: 1_500_000_000, Size: 40, Acked: true})
	s.Append(Report{Kind: Resend, Of: 1})
	s.Append(Report{Kind: Conflict, Counter: 1, Boot: 1, Due: 1_500_000_000, Size: 40})
	s.Append(Report{Counter: 2, Due: 2_000_000_000, Size: 0})
	for range 40 {
		s.Append(Report{Kind: Poison})
	}
	return l
}

// TestPayload_NamesItsReport: any copy of a report, wherever it lies, leads back to its line.
func TestPayload_NamesItsReport(t *testing.T) {
	t.Parallel()
	l := sample()
	for i, r := range l.Streams[0].Reports {
		number := uint32(i + 1)
		want := number
		if r.Kind == Resend {
			want = r.Of
		}
		if got := NumberIn(l.AppendPayload(nil, 0, number, r)); got != want {
			t.Errorf("%s report %d names itself %d", r.Kind, number, got)
		}
	}
	for _, none := range []string{"", "{}", `{"report":}`, `{"report":99999999999999999999}`} {
		if n := NumberIn([]byte(none)); n != 0 && none != `{"report":99999999999999999999}` {
			t.Errorf("%q names report %d", none, n)
		}
	}
}

func TestPayload_IsWhatTheHubstateProfileReads(t *testing.T) {
	t.Parallel()
	l := sample()
	var got struct {
		Seq, Boot int64
		TS        time.Time
		State     json.RawMessage
	}
	if err := json.Unmarshal(l.AppendPayload(nil, 0, 1, l.Streams[0].Reports[0]), &got); err != nil {
		t.Fatal(err)
	}
	if got.Seq != 1 || got.Boot != 1 || !got.TS.Equal(l.Start.Add(1500*time.Millisecond)) {
		t.Errorf("read %+v", got)
	}
	if want := AppendState(nil, l.Seed, 0, 1, 40); string(got.State) != string(want) {
		t.Errorf("state %s, want %s", got.State, want)
	}
	var bootless map[string]any
	if err := json.Unmarshal(l.AppendPayload(nil, 0, 4, l.Streams[0].Reports[3]), &bootless); err != nil {
		t.Fatal(err)
	}
	if _, has := bootless["boot"]; has {
		t.Error("a device without boot sends one")
	}
}

func TestPayload_ConflictContradictsTheReportBeforeIt(t *testing.T) {
	t.Parallel()
	l := sample()
	a, b := l.AppendPayload(nil, 0, 1, l.Streams[0].Reports[0]), l.AppendPayload(nil, 0, 3, l.Streams[0].Reports[2])
	var first, second map[string]any
	if json.Unmarshal(a, &first) != nil || json.Unmarshal(b, &second) != nil {
		t.Fatalf("not JSON:\n%s\n%s", a, b)
	}
	if first["seq"] != second["seq"] || first["ts"] != second["ts"] || reflect.DeepEqual(first["state"], second["state"]) {
		t.Errorf("no conflict:\n%s\n%s", a, b)
	}
}

func TestLedger_SurvivesItsFile(t *testing.T) {
	t.Parallel()
	l := sample()
	path := filepath.Join(t.TempDir(), "ledger")
	if err := l.Save(path); err != nil {
		t.Fatal(err)
	}
	back, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(l.Streams[0].Reports, back.Streams[0].Reports) || !l.Start.Equal(back.Start) || l.Seed != back.Seed {
		t.Error("differs after Save and Load")
	}
	if back.Find("d-000001", "state") != 0 || back.Find("d-000001", "other") != -1 {
		t.Error("streams are not found")
	}
}

func TestLedger_RefusesADamagedFile(t *testing.T) {
	t.Parallel()
	l := sample()
	l.Streams[0].Reports[1].Of = 7
	path := filepath.Join(t.TempDir(), "ledger")
	if err := l.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil {
		t.Error("a resend of a later report was accepted")
	}
}
