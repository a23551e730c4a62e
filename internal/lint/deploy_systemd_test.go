package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDeploy_SystemdUnits asks systemd itself, where it is installed: unknown or misspelt settings, and how exposed a
// unit is. The binary is replaced, since it is not installed where tests run.
func TestDeploy_SystemdUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	units := copyUnits(t, func(unit string) string { return unit })
	if out, err := exec.CommandContext(t.Context(), analyze, append([]string{"verify"}, units...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	for _, unit := range units {
		if !strings.HasSuffix(unit, ".service") {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), analyze, "security", "--offline=yes", "--threshold=20", unit).CombinedOutput(); err != nil {
			t.Errorf("%s is too exposed: %v\n%s", filepath.Base(unit), err, out)
		}
	}
}

// TestDeploy_SystemdIsChecked proves that a misspelt setting does not pass: systemd only warns about it.
func TestDeploy_SystemdIsChecked(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	units := copyUnits(t, func(unit string) string { return strings.Replace(unit, "ProtectHome=", "ProtectHouse=", 1) })
	out, err := exec.CommandContext(t.Context(), analyze, append([]string{"verify"}, units...)...).CombinedOutput()
	if err == nil && len(out) == 0 {
		t.Error("a unit with a misspelt setting was accepted")
	}
}

func copyUnits(t *testing.T, change func(string) string) []string {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "deploy/systemd/hubstate*.*"))
	if err != nil {
		t.Fatal(err)
	}
	binary := regexp.MustCompile(`(?m)^ExecStart=\S+`)
	dir := t.TempDir()
	var units []string
	for _, source := range sources {
		if ext := filepath.Ext(source); ext != ".service" && ext != ".target" {
			continue
		}
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		unit := filepath.Join(dir, filepath.Base(source))
		if err := os.WriteFile(unit, []byte(change(binary.ReplaceAllString(string(data), "ExecStart=/bin/true"))), 0o600); err != nil {
			t.Fatal(err)
		}
		units = append(units, unit)
	}
	if len(units) < 5 {
		t.Fatalf("found %d units", len(units))
	}
	return units
}
