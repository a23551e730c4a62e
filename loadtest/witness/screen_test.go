package witness

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

func TestReadScreen_ReadsWhatIsShownAndLeavesOutTheRest(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/devices/{device}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("device") != "d-1" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"device":{"streams":[{"stream":"other","sequence":9},{"stream":"state","epoch":1,"sequence":7,"received_at":"2026-12-01T04:00:00.123Z"}]}}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	book := ledger.New("t", 1, time.Now(), []*ledger.Stream{{Device: "d-1", Name: "state"}, {Device: "d-2", Name: "state"}})
	screen, err := ReadScreen(t.Context(), server.URL, book)
	if err != nil {
		t.Fatal(err)
	}
	want := oracle.Shown{Epoch: 1, Sequence: 7, ReceivedAt: time.Date(2026, 12, 1, 4, 0, 0, 123_000_000, time.UTC)}
	if len(screen) != 1 || screen[ledger.Key{Device: "d-1", Stream: "state"}] != want {
		t.Errorf("screen %+v", screen)
	}
	server.Close()
	if _, err := ReadScreen(t.Context(), server.URL, book); err == nil {
		t.Error("a monitor that does not answer shows nothing, without an error")
	}
}

func TestParseSkipped_ReadsTheHeader(t *testing.T) {
	t.Parallel()
	got, err := parseSkipped("41-57:superseded,58:dead")
	if err != nil || len(got) != 2 || got[0] != (oracle.Range{From: 41, To: 57}) || got[1] != (oracle.Range{From: 58, To: 58}) {
		t.Errorf("read %v, %v", got, err)
	}
	for _, bad := range []string{"41-57", "x:dead", "1-:dead", ","} {
		if _, err := parseSkipped(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
