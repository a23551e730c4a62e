package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hubstate/hubstate/devicestate"
	"go.yaml.in/yaml/v3"
)

// LoadProfiles returns the profiles of files, in their order of precedence, followed by the named built-in ones. A file's
// profile replaces the built-in one of its name. Unknown keys and values outside of their limits are errors, all joined.
func LoadProfiles(files, builtin []string) ([]devicestate.Profile, error) {
	var profiles []devicestate.Profile
	var errs []error
	for _, path := range files {
		p, err := readProfile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if slices.ContainsFunc(profiles, func(o devicestate.Profile) bool { return o.Name == p.Name }) {
			errs = append(errs, fmt.Errorf("profiles: %s: the name %q stands twice", path, p.Name))
		}
		profiles = append(profiles, p)
	}
	for _, name := range builtin {
		p, ok := builtinProfile(name)
		if !ok {
			errs = append(errs, fmt.Errorf("builtin_profiles = %q: no such profile", name))
			continue
		}
		if !slices.ContainsFunc(profiles, func(o devicestate.Profile) bool { return o.Name == p.Name }) {
			profiles = append(profiles, p)
		}
	}
	return profiles, errors.Join(errs...)
}

func builtinProfile(name string) (devicestate.Profile, bool) {
	for _, p := range devicestate.Builtin() {
		if p.Name == name {
			return p, true
		}
	}
	return devicestate.Profile{}, false
}

func readProfile(path string) (devicestate.Profile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return devicestate.Profile{}, fmt.Errorf("profiles: %w", err)
	}
	p, err := ParseProfile(text)
	if err != nil {
		return p, fmt.Errorf("profiles: %s: %w", path, err)
	}
	return p, nil
}

// ParseProfile reads one profile from YAML, strictly.
func ParseProfile(text []byte) (devicestate.Profile, error) {
	var p devicestate.Profile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("read profile: %w", err)
	}
	return p, p.Validate()
}

// WriteProfile renders p as the YAML that ParseProfile reads.
func WriteProfile(p devicestate.Profile) ([]byte, error) {
	text, err := yaml.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("render profile %s: %w", p.Name, err)
	}
	return text, nil
}
