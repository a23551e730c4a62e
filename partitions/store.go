package partitions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Store keeps archives by name. A directory is one; an object store fits the same methods. One maintainer writes at a
// time, anybody may read. A name that was committed is complete and durable; committing it again replaces it in one step.
type Store interface {
	// Create begins a file; nothing is to be seen under its name before Commit.
	Create(ctx context.Context, name string) (Upload, error)
	// Open reads a committed file. The error wraps fs.ErrNotExist when there is none.
	Open(ctx context.Context, name string) (File, error)
	// List returns the committed names in order.
	List(ctx context.Context) ([]string, error)
	// Clean removes what uploads of names with the prefix left behind that were never committed.
	Clean(ctx context.Context, prefix string) error
	// String says where the archives are, for people.
	String() string
}

// Upload is a file being written. After an error of any method only Abort is called. Abort after Commit does nothing.
type Upload interface {
	io.Writer
	Commit() error
	Abort() error
}

// File is a committed file.
type File interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Dir is a Store in a directory that exists. It must be the same directory for every process that may become the
// maintainer: a shared mount when they run on several machines.
type Dir string

const partial = ".partial"

// String is the path.
func (d Dir) String() string { return string(d) }

func (d Dir) path(name string) (string, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("archive name %q: must be a plain file name", name)
	}
	return filepath.Join(string(d), name), nil
}

// Create opens a hidden file beside the final one, so that the rename stays on one file system.
func (d Dir) Create(_ context.Context, name string) (Upload, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(string(d), "."+name+partial), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("begin archive file: %w", err)
	}
	return &dirUpload{File: file, path: path}, nil
}

// Open opens a committed file.
func (d Dir) Open(_ context.Context, name string) (File, error) {
	path, err := d.path(name)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open archive file: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &dirFile{File: file, size: info.Size()}, nil
}

// List returns the names of all files that are not hidden.
func (d Dir) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("list archives: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Clean removes the hidden files of uploads that were never committed.
func (d Dir) Clean(_ context.Context, prefix string) error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("list archives: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+prefix) && strings.HasSuffix(e.Name(), partial) {
			errs = append(errs, os.Remove(filepath.Join(string(d), e.Name())))
		}
	}
	return errors.Join(errs...)
}

type dirUpload struct {
	*os.File
	path      string
	committed bool
}

// Commit makes the file durable before it gets its name, and the name durable before it returns.
func (u *dirUpload) Commit() error {
	if err := errors.Join(u.Sync(), u.Close()); err != nil {
		return fmt.Errorf("sync archive file: %w", err)
	}
	if err := os.Rename(u.Name(), u.path); err != nil {
		return fmt.Errorf("name archive file: %w", err)
	}
	u.committed = true
	return syncDir(filepath.Dir(u.path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync archive directory: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync archive directory: %w", err)
	}
	return nil
}

func (u *dirUpload) Abort() error {
	if u.committed {
		return nil
	}
	_ = u.Close() // perhaps closed by a failed Commit; the file goes anyway
	return os.Remove(u.Name())
}

type dirFile struct {
	*os.File
	size int64
}

func (f *dirFile) Size() int64 { return f.size }
