package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// scrapes is what the tests read of a Prometheus configuration.
type scrapes struct {
	RuleFiles []string `yaml:"rule_files"`
	Jobs      []struct {
		Name    string `yaml:"job_name"`
		Targets []struct {
			Targets []string `yaml:"targets"`
		} `yaml:"static_configs"`
	} `yaml:"scrape_configs"`
}

// TestDeploy_ComposeScrapesItsServices keeps the two Prometheus configurations the same but for the addresses, and the
// addresses those of services that exist.
func TestDeploy_ComposeScrapesItsServices(t *testing.T) {
	t.Parallel()
	project, err := loadCompose(t, readFile(t, composePath))
	if err != nil {
		t.Fatal(err)
	}
	plain, compose := readScrapes(t, "deploy/prometheus/prometheus.yml"), readScrapes(t, "deploy/compose/prometheus.yml")
	if strings.Join(plain.RuleFiles, " ") != strings.Join(compose.RuleFiles, " ") || len(plain.Jobs) != len(compose.Jobs) {
		t.Fatalf("rules %v and %d jobs, but in compose %v and %d", plain.RuleFiles, len(plain.Jobs), compose.RuleFiles, len(compose.Jobs))
	}
	for i, job := range compose.Jobs {
		if job.Name != plain.Jobs[i].Name {
			t.Errorf("job %s is called %s in compose; the alerts know the first name", plain.Jobs[i].Name, job.Name)
		}
		for _, target := range job.Targets[0].Targets {
			service, port, _ := strings.Cut(target, ":")
			if _, ok := project.Services[service]; !ok || port != "9100" {
				t.Errorf("target %s is no service of compose.yaml on its admin port", target)
			}
		}
	}
}

func readScrapes(t *testing.T, path string) scrapes {
	t.Helper()
	var s scrapes
	if err := yaml.Unmarshal(readFile(t, path), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Jobs) == 0 {
		t.Fatalf("%s scrapes nothing", path)
	}
	return s
}

// TestDeploy_PrometheusConfiguration asks promtool, where it is installed, about both configurations with their rules.
func TestDeploy_PrometheusConfiguration(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed")
	}
	for _, config := range []string{"deploy/prometheus/prometheus.yml", "deploy/compose/prometheus.yml"} {
		dir := t.TempDir()
		for name, path := range map[string]string{"prometheus.yml": config, "alerts.yml": "deploy/prometheus/alerts.yml", "slo.yml": "deploy/prometheus/slo.yml"} {
			if err := os.WriteFile(filepath.Join(dir, name), readFile(t, path), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.CommandContext(t.Context(), promtool, "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", config, err, out)
		}
	}
}
