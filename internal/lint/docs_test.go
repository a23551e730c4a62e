package lint

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated parts of docs/metrics.md and docs/cli.md")

const generated = "<!-- generated: go test ./internal/lint/ -run Docs -update -->\n"

// TestDocs_Metrics compares docs/metrics.md with the metrics that the source declares.
func TestDocs_Metrics(t *testing.T) {
	t.Parallel()
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range uniqueMetrics(Metrics(tree)) {
		if m.section {
			fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n", m.Package)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Kind(), strings.Join(m.Labels, ", "), strings.ReplaceAll(m.Help, "|", "\\|"))
	}
	compareGenerated(t, "docs/metrics.md", b.String())
}

type metricRow struct {
	Metric
	section bool // first of its package
}

func uniqueMetrics(all []Metric) []metricRow {
	var rows []metricRow
	seen := map[string]bool{}
	last := ""
	for _, m := range all {
		if m.Name == "" || seen[m.Name] {
			continue
		}
		seen[m.Name] = true
		rows = append(rows, metricRow{m, m.Package != last})
		last = m.Package
	}
	return rows
}

// TestDocs_Commands compares docs/cli.md with what the binaries print. It builds them, so it runs in CI and with -update.
func TestDocs_Commands(t *testing.T) {
	t.Parallel()
	if os.Getenv("CI") == "" && !*update {
		t.Skip("builds every command: runs with CI=true or -update")
	}
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "./cmd/ingest", "./cmd/relay", "./cmd/monitor", "./cmd/hub", "./loadtest")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var b strings.Builder
	for _, command := range []string{"ingest", "relay", "monitor", "hub", "loadtest"} {
		fmt.Fprintf(&b, "\n## %s\n", command)
		describeCommand(t, &b, filepath.Join(bin, command), nil)
	}
	compareGenerated(t, "docs/cli.md", b.String())
}

// describeCommand prints the help of a command and of those below it.
func describeCommand(t *testing.T, b *strings.Builder, binary string, args []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--help")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s --help: %v", filepath.Base(binary), strings.Join(args, " "), err)
	}
	help := hideMachine(string(out))
	if len(args) > 0 {
		fmt.Fprintf(b, "\n### %s %s\n", filepath.Base(binary), strings.Join(args, " "))
	}
	fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(help))
	for _, sub := range subcommands(help) {
		describeCommand(t, b, binary, append(slices.Clone(args), sub))
	}
}

func subcommands(help string) []string {
	_, list, ok := strings.Cut(help, "Available Commands:\n")
	if !ok {
		return nil
	}
	list, _, _ = strings.Cut(list, "\n\n")
	name := regexp.MustCompile(`(?m)^\s+(\S+)`)
	var names []string
	for _, m := range name.FindAllStringSubmatch(list, -1) {
		if m[1] != "help" && m[1] != "completion" {
			names = append(names, m[1])
		}
	}
	return names
}

// hideMachine replaces what differs between machines in defaults.
func hideMachine(help string) string {
	if host, err := os.Hostname(); err == nil && host != "" {
		help = strings.ReplaceAll(help, host, "HOSTNAME")
	}
	dataDir := regexp.MustCompile(`(\(HUBSTATE_DATA_DIR\)) \(default "[^"]*"\)`)
	return dataDir.ReplaceAllString(help, "$1 (default: below the user's data directory)")
}

// compareGenerated compares, or with -update replaces, what follows the marker in the page.
func compareGenerated(t *testing.T, page, want string) {
	t.Helper()
	have := readFile(t, page)
	head, body, ok := bytes.Cut(have, []byte(generated))
	if !ok {
		t.Fatalf("%s has no line %q", page, strings.TrimSpace(generated))
	}
	if string(body) == want {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: go test ./internal/lint/ -run Docs -update", page)
	}
	fresh := slices.Concat(head, []byte(generated), []byte(want))
	if err := os.WriteFile(filepath.Join(root, page), fresh, 0o644); err != nil { //nolint:gosec // a page of documentation
		t.Fatal(err)
	}
}
