// Package setup_test holds what the Makefile and the set-up script promise.
package setup_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/internal/embedded"
)

const root = "../../../"

var target = regexp.MustCompile(`(?m)^\.PHONY: (\S+)$`)

func TestMake_AlonePrintsEveryTarget(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(root + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-C", root)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("make: %v", err)
	}
	targets := target.FindAllSubmatch(makefile, -1)
	if len(targets) < 15 {
		t.Fatalf("only %d targets found in the Makefile", len(targets))
	}
	for _, match := range targets {
		if !regexp.MustCompile(`(?m)^  ` + string(match[1]) + ` +\S`).Match(out) {
			t.Errorf("make does not explain %s", match[1])
		}
	}
}

func TestSetup_FetchesTheKafkaThatTheTestsRun(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"setup.sh", "kafka-pom.xml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), embedded.KafkaVersion) {
			t.Errorf("%s does not name Kafka %s", file, embedded.KafkaVersion)
		}
	}
}

func TestSetup_IsAShellScriptWithoutErrors(t *testing.T) {
	t.Parallel()
	for _, script := range []string{"setup.sh", root + ".ci/run"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}
