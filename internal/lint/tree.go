package lint

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the module path of Hubstate.
const Module = "github.com/hubstate/hubstate"

// largestText bounds what is read: bigger files are recordings or archives, which no rule looks into.
const largestText = 1 << 20

// Tree is the work tree at one moment: the files, and the parsed form of those that are Go. It is read-only after
// [Load] or [Parse] and safe for concurrent use.
type Tree struct {
	Fset  *token.FileSet
	Files []*File
}

// File is one file of the tree. AST is nil unless the file is Go code of this module (testdata is not).
type File struct {
	Path string // slash-separated, relative to the root
	Data []byte // nil for binary files and files above 1 MiB
	AST  *ast.File
}

// Load reads the tree at root: what Git tracks and what it would let be added.
func Load(ctx context.Context, root string) (*Tree, error) {
	paths, err := list(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	files := map[string][]byte{}
	for _, p := range paths {
		data, err := readText(filepath.Join(root, filepath.FromSlash(p)))
		if os.IsNotExist(err) {
			continue // deleted or renamed since it was listed: it is not in the tree
		}
		if err != nil {
			return nil, err
		}
		files[p] = data
	}
	return Parse(files)
}

// Parse makes a tree of files held in memory, keyed by path. A Go file with a syntax error is an error.
func Parse(files map[string][]byte) (*Tree, error) {
	t := &Tree{Fset: token.NewFileSet()}
	for p, data := range files {
		f := &File{Path: p, Data: data}
		if isGo(p) {
			parsed, err := parser.ParseFile(t.Fset, p, data, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, fmt.Errorf("parse: %w", err)
			}
			f.AST = parsed
		}
		t.Files = append(t.Files, f)
	}
	slices.SortFunc(t.Files, func(a, b *File) int { return strings.Compare(a.Path, b.Path) })
	return t, nil
}

// list asks Git, so that ignored build output never counts; a source archive without .git is walked instead.
func list(ctx context.Context, root string) ([]string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return walk(root)
	}
	paths := slices.Compact(slices.Sorted(strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00")))
	return paths, touchDirectories(root, paths)
}

// touchDirectories reads each directory once. What Git reads is invisible to go test's result cache; without this a
// file added after a pass would be judged by the cached "ok".
func touchDirectories(root string, paths []string) error {
	seen := map[string]bool{}
	for _, p := range paths {
		for dir := path.Dir(p); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if _, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(dir))); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

func walk(root string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "build"}, rel) {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			paths = append(paths, filepath.ToSlash(rel))
		}
		return nil
	})
	return paths, err
}

func readText(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Size() > largestText {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(data, 0) >= 0 {
		return nil, nil
	}
	return data, nil
}

func isGo(p string) bool {
	return strings.HasSuffix(p, ".go") && !strings.Contains("/"+p, "/testdata/")
}

// Dir returns the directory of the file, which for Go is its package; "." for the root.
func (f *File) Dir() string { return path.Dir(f.Path) }

// Test reports whether the file is compiled for tests only.
func (f *File) Test() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Main reports whether the file belongs to a command.
func (f *File) Main() bool { return f.AST != nil && f.AST.Name.Name == "main" }

// Line returns the line number of pos, counted from 1.
func (t *Tree) Line(pos token.Pos) int { return t.Fset.Position(pos).Line }

// Code returns the Go files that end up in binaries: no tests, no testdata.
func (t *Tree) Code() []*File {
	return slices.DeleteFunc(t.Go(), (*File).Test)
}

// Go returns all Go files, tests included.
func (t *Tree) Go() []*File {
	var files []*File
	for _, f := range t.Files {
		if f.AST != nil {
			files = append(files, f)
		}
	}
	return files
}

// File returns the file at path, or nil.
func (t *Tree) File(path string) *File {
	i := slices.IndexFunc(t.Files, func(f *File) bool { return f.Path == path })
	if i < 0 {
		return nil
	}
	return t.Files[i]
}

// eachCode calls check with each file that is compiled into binaries and stamps its violations with rule and path.
func (t *Tree) eachCode(rule string, check func(*File) []Violation) []Violation {
	return collect(rule, t.Code(), check)
}

func collect(rule string, files []*File, check func(*File) []Violation) []Violation {
	var all []Violation
	for _, f := range files {
		for _, v := range check(f) {
			v.Rule, v.Path = rule, f.Path
			all = append(all, v)
		}
	}
	return all
}
