package main

import (
	"testing"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/ingest"
	"github.com/hubstate/hubstate/internal/monitor"
)

// A device of the fleet that goes offline must show as silent after expect, whatever else this hub can read: the page
// showed everybody fresh for half a minute because vda5050 allows its own `state` so long.
func TestProfiles_SilenceShowsAfterExpect(t *testing.T) {
	h := &hub{dir: t.TempDir()}
	names, err := h.writeProfiles()
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := ingest.LoadProfiles(names)
	if err != nil {
		t.Fatal(err)
	}
	e, conflicts := monitor.NewExpectations(profiles)
	if got := e.Of("state").Silent; got != expect {
		t.Errorf("state may be quiet for %s, want %s", got, expect)
	}
	if len(conflicts) > 0 {
		t.Errorf("profiles disagree on %v", conflicts)
	}
	if _, err := devicestate.NewMatcher(profiles, devicestate.Limits{}); err != nil {
		t.Errorf("profiles do not fit together: %v", err)
	}
}
