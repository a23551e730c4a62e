package main

import (
	"maps"
	"os"
	"strings"
	"testing"
)

func TestParse_ReadsMetricsByTheirUnit(t *testing.T) {
	t.Parallel()
	out := []byte("goos: linux\nBenchmarkX/writers=2-2   \t  200000\t     21034 ns/op\t     47541 reports/s\t 1.2e+01 server-µs/op\nPASS\n")
	want := map[string]float64{"ns/op": 21034, "reports/s": 47541, "server-µs/op": 12}
	if got := parse(out); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSummarise_TakesTheMedianAndTheRange(t *testing.T) {
	t.Parallel()
	if got, want := summarise([]float64{0.9, 0.5, 0.7, 0.1, 0.8}), (result{0.7, 0.1, 0.9}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A ratio is of no use when its benchmark was renamed.
func TestRatios_NameBenchmarksThatExist(t *testing.T) {
	t.Parallel()
	for _, r := range ratios() {
		text := sources(t, "../../../"+strings.TrimPrefix(r.pkg, "./"))
		for _, name := range []string{r.ours, r.other} {
			function, _, _ := strings.Cut(strings.TrimSuffix(name, "$"), "/")
			if function != "" && !strings.Contains(text, "func "+function+"(") {
				t.Errorf("%s: there is no %s in %s", r.name, function, r.pkg)
			}
		}
	}
}

func sources(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), "_test.go") {
			text, err := os.ReadFile(dir + "/" + entry.Name())
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}
