package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// setting is one HUBSTATE_* variable that a deployment file gives to a command.
type setting struct {
	command string // ingest, relay, monitor
	name    string
	where   string
}

func TestDeploy_EnvironmentExists(t *testing.T) {
	t.Parallel()
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	settings := slices.Concat(composeSettings(t), systemdSettings(t), k8sSettings(t))
	if len(settings) < 20 {
		t.Fatalf("found %d settings: the readers are blind", len(settings))
	}
	for _, problem := range unknownSettings(tree, settings) {
		t.Error(problem)
	}
}

func TestDeploy_EnvironmentIsChecked(t *testing.T) {
	t.Parallel()
	tree, err := Parse(map[string][]byte{"cmd/relay/main.go": []byte("package main\n\ntype c struct {\n\tURL string `koanf:\"database_url\" help:\"x\"`\n}\n")})
	if err != nil {
		t.Fatal(err)
	}
	got := unknownSettings(tree, []setting{{"relay", "HUBSTATE_DATABASE_URL", "a"}, {"relay", "HUBSTATE_DATABASE_URI", "b"}, {"relay", "HUBSTATE_CONFIG", "c"}})
	if len(got) != 1 || !strings.Contains(got[0], "HUBSTATE_DATABASE_URI") {
		t.Errorf("got %q", got)
	}
}

// unknownSettings names the variables that no configuration key of their command answers to. The daemon would ignore
// them without a word, which is how a password or a bucket count is lost.
func unknownSettings(tree *Tree, settings []setting) []string {
	var problems []string
	for _, s := range settings {
		key, ours := strings.CutPrefix(s.name, "HUBSTATE_")
		if !ours || key == "CONFIG" {
			continue
		}
		if _, ok := ConfigKeys(tree, "cmd/"+s.command)[strings.ToLower(key)]; !ok {
			problems = append(problems, s.where+": cmd/"+s.command+" has no configuration key for "+s.name)
		}
	}
	return problems
}

func composeSettings(t *testing.T) []setting {
	t.Helper()
	project, err := loadCompose(t, readFile(t, composePath))
	if err != nil {
		t.Fatal(err)
	}
	var all []setting
	for _, s := range project.Services {
		if len(s.Command) == 0 {
			continue
		}
		for name := range s.Environment {
			all = append(all, setting{s.Command[0], name, composePath + " service " + s.Name})
		}
	}
	return slices.DeleteFunc(all, func(s setting) bool { return !strings.HasPrefix(s.name, "HUBSTATE_") })
}

func systemdSettings(t *testing.T) []setting {
	t.Helper()
	commands := map[string][]string{"ingest": {"ingest"}, "relay": {"relay"}, "monitor": {"monitor"}, "migrate": {"relay"}}
	var all []setting
	for unit, binaries := range commands {
		path := "deploy/systemd/" + unit + ".env.example"
		for name := range readEnvFile(t, path) {
			all = append(all, setting{binaries[0], name, path})
		}
	}
	return all
}

func k8sSettings(t *testing.T) []setting {
	t.Helper()
	commands := map[string]string{"ingest": "ingest", "relay": "relay", "monitor": "monitor", "migrate": "relay"}
	var all []setting
	for secret, command := range commands {
		path := "deploy/k8s/example/" + secret + ".env"
		for name := range readEnvFile(t, path) {
			all = append(all, setting{command, name, path})
		}
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy/k8s/base/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`(?m)^\s*(?:- name: )?(HUBSTATE_[A-Z_]+)`)
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range variable.FindAllSubmatch(data, -1) {
			for _, command := range []string{"ingest", "relay", "monitor"} {
				if base := filepath.Base(f); base == command+".yaml" || base == "config.yaml" {
					all = append(all, setting{command, string(m[1]), base})
				}
			}
		}
	}
	return all
}
