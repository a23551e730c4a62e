package ingest

import (
	"strings"
	"unicode/utf8"

	"github.com/hubstate/hubstate/devicestate"
)

// validFilter follows MQTT 3.1.1, section 4.7.
func validFilter(f string) bool {
	if f == "" || len(f) > 65_535 || !utf8.ValidString(f) || strings.ContainsRune(f, 0) {
		return false
	}
	levels := strings.Split(f, "/")
	for i, l := range levels {
		if l == "#" && i == len(levels)-1 || l == "+" {
			continue
		}
		if strings.ContainsAny(l, "#+") {
			return false
		}
	}
	return true
}

func validLane(s string) bool { return len(s) <= 64 && validName(s) }

// validName: what every part, from MQTT to a URL, can carry unescaped.
func validName(s string) bool {
	if s == "" {
		return false
	}
	for _, c := range s {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-", c) {
			return false
		}
	}
	return true
}

// filtersOf are the MQTT filters that bring every topic of the profiles, each once, in order.
func filtersOf(profiles []devicestate.Profile) []string {
	var filters []string
	seen := map[string]bool{}
	for _, p := range profiles {
		for _, t := range p.Topics {
			if f := t.Filter(); !t.Ignore && !seen[f] {
				seen[f] = true
				filters = append(filters, f)
			}
		}
	}
	return filters
}
