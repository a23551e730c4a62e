package lint

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

const composePath = "deploy/compose.yaml"

// loadCompose resolves a compose file as docker compose would: schema, interpolation, references between services.
func loadCompose(t *testing.T, content []byte) (*types.Project, error) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join(root, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	details := types.ConfigDetails{
		WorkingDir:  dir,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(dir, "compose.yaml"), Content: content}},
		Environment: readEnvFile(t, "deploy/compose.env.example"),
	}
	return loader.LoadWithContext(t.Context(), details)
}

func readEnvFile(t *testing.T, path string) map[string]string {
	t.Helper()
	env := map[string]string{}
	scanner := bufio.NewScanner(strings.NewReader(string(readFile(t, path))))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			t.Fatalf("%s: not NAME=VALUE: %q", path, line)
		}
		env[name] = value
	}
	return env
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDeploy_ComposeLoads(t *testing.T) {
	t.Parallel()
	project, err := loadCompose(t, readFile(t, composePath))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mosquitto", "postgres", "kafka", "redis", "migrate", "ingest-1", "ingest-2", "relay-1", "relay-2",
		"monitor", "prometheus", "grafana"} {
		if _, ok := project.Services[name]; !ok {
			t.Errorf("service %s is missing", name)
		}
	}
	for _, s := range project.Services {
		for _, v := range s.Volumes {
			if v.Type != types.VolumeTypeBind {
				continue
			}
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("service %s mounts what is not in the repository: %v", s.Name, err)
			}
		}
	}
}

// TestDeploy_ComposeIsChecked proves that the check above sees: each broken copy must be refused.
func TestDeploy_ComposeIsChecked(t *testing.T) {
	t.Parallel()
	good := string(readFile(t, composePath))
	for name, swap := range map[string][2]string{
		"misspelt key":       {"stop_grace_period: 2m", "stop_grace_periodz: 2m"},
		"unknown service":    {"    depends_on: [prometheus]", "    depends_on: [prometheuz]"},
		"unknown network":    {"networks: [hub]", "networks: [hup]"},
		"unset required env": {"${GRAFANA_PASSWORD:?", "${GRAFANA_PASSWORT:?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := strings.Replace(good, swap[0], swap[1], 1)
			if bad == good {
				t.Fatalf("%q is not in the file any more", swap[0])
			}
			if _, err := loadCompose(t, []byte(bad)); err == nil {
				t.Error("a broken file was accepted")
			}
		})
	}
}
