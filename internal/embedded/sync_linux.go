package embedded

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFilesystem makes everything written to dir's filesystem durable with one call, instead of one fsync for each of
// the thousand files initdb writes.
func syncFilesystem(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Syncfs(int(file.Fd()))
}
