package lint

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

func TestHouse(t *testing.T) {
	t.Parallel()
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			vs := sorted(r.Check(tree))
			for _, v := range vs {
				t.Error(v)
			}
			if len(vs) > 0 {
				t.Log("why:", r.Why)
			}
		})
	}
}

// TestRules_CatchTheirMutation proves that each rule sees: exactly the marked lines of its bad example, and no other.
func TestRules_CatchTheirMutation(t *testing.T) {
	t.Parallel()
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			files := readArchive(t, filepath.Join("testdata", r.Name+".txtar"))
			tree, err := Parse(files)
			if err != nil {
				t.Fatal(err)
			}
			want := markers(files)
			if len(want) == 0 {
				t.Fatal("the mutation marks no line as bad: it proves nothing")
			}
			for _, v := range sorted(r.Check(tree)) {
				at := v.Path + ":" + strconv.Itoa(v.Line)
				if text, ok := want[at]; !ok || !strings.Contains(v.Message, text) {
					t.Errorf("cries wolf: %v", v)
				}
				delete(want, at)
			}
			for at, text := range want {
				t.Errorf("blind: %s should be a violation: %s", at, text)
			}
		})
	}
}

// TestLoad_SeesThisPackage guards against a loader that finds nothing, under which every rule would pass.
func TestLoad_SeesThisPackage(t *testing.T) {
	t.Parallel()
	tree, err := Load(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"internal/lint/tree.go", "go.mod", "internal/schema/migrations/0004_outbox.sql"} {
		if tree.File(path) == nil {
			t.Errorf("%s is not in the tree", path)
		}
	}
	walked, err := walk(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(walked) < len(tree.Files) {
		t.Errorf("walk finds %d files, Git %d", len(walked), len(tree.Files))
	}
}

// readArchive reads files in the txtar form: "-- path --" begins a file. A line "#repeat N text" stands for N lines.
func readArchive(t *testing.T, name string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("every rule needs a mutation: %v", err)
	}
	data = bytes.ReplaceAll(data, []byte("QQ"), nil) // keeps a bad machine path from breaking its own rule
	header := regexp.MustCompile(`^-- (\S+) --$`)
	repeat := regexp.MustCompile(`^#repeat (\d+) (.*)$`)
	files := map[string][]byte{}
	current := ""
	for line := range bytes.Lines(data) {
		text := strings.TrimSuffix(string(line), "\n")
		if m := header.FindStringSubmatch(text); m != nil {
			current = m[1]
			files[current] = nil
			continue
		}
		times := 1
		if m := repeat.FindStringSubmatch(text); m != nil {
			times, err = strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			text = m[2]
		}
		files[current] = append(files[current], strings.Repeat(text+"\n", times)...)
	}
	delete(files, "") // what stands before the first file is a comment
	return files
}

// markers returns the text after "want: " by path:line.
func markers(files map[string][]byte) map[string]string {
	want := map[string]string{}
	for path, data := range files {
		for i, line := range strings.Split(string(data), "\n") {
			if _, text, ok := strings.Cut(line, "want: "); ok {
				text = strings.TrimRight(strings.TrimSuffix(text, " -->"), `")}`)
				want[path+":"+strconv.Itoa(i+1)] = strings.TrimSpace(text)
			}
		}
	}
	return want
}
