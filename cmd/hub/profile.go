package main

import (
	_ "embed"
	"fmt"
	"os"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/ingest"
)

// profile is the built-in profile hubstate with short expectations, so that silence shows within seconds.
//
//go:embed profile.yaml
var profile []byte

// expect is how long a state may be quiet here, whoever's it is.
const expect = 10 * time.Second

// writeProfiles puts the profiles where ingester and monitor read them, and returns their paths.
func (h *hub) writeProfiles() ([]string, error) {
	builtin, err := ingest.LoadProfiles([]string{"vda5050"})
	if err != nil {
		return nil, err
	}
	hurry(builtin[0])
	vehicles, err := ingest.WriteProfile(builtin[0])
	if err != nil {
		return nil, err
	}
	own, other := h.part("profile.yaml"), h.part("vda5050.yaml")
	if err := os.WriteFile(own, profile, 0o600); err != nil {
		return nil, fmt.Errorf("write the device profile: %w", err)
	}
	if err := os.WriteFile(other, vehicles, 0o600); err != nil {
		return nil, fmt.Errorf("write the device profile: %w", err)
	}
	return []string{own, other}, nil
}

// hurry makes a profile expect its states as often as the simulated fleet's: both call the stream `state`, an event does
// not say by which profile it was read, and the longer expectation would count for both.
func hurry(p devicestate.Profile) {
	for stream, policy := range p.Streams {
		if policy.Kind != devicestate.KindConnection && policy.Expect <= time.Minute && policy.Heartbeat == 0 {
			policy.Expect = expect
			p.Streams[stream] = policy
		}
	}
}
