package main

import (
	_ "embed"
	"fmt"
	"os"
)

// profile is the built-in profile hubstate with short expectations, so that silence shows within seconds.
//
//go:embed profile.yaml
var profile []byte

// writeProfile puts the profile where ingester and monitor read it, and returns its path.
func (h *hub) writeProfile() (string, error) {
	path := h.part("profile.yaml")
	if err := os.WriteFile(path, profile, 0o600); err != nil {
		return "", fmt.Errorf("write the device profile: %w", err)
	}
	return path, nil
}
