package embedded

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the unprivileged user a root caller starts a server as.
type owner struct {
	name     string
	uid, gid int
}

func (o *owner) credential() *syscall.Credential {
	return &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
}

// serverOwner is nil when the caller is not root. A root caller drops to postgres, or to nobody where the distribution
// made no such user; a bare number will not do, because initdb looks its user up by name.
func serverOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil {
			return &owner{name: name, uid: uid, gid: gid}, nil
		}
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root and there is neither a user postgres nor nobody: run as another user")
}

// take makes dir and all below it the owner's, so that a directory another user left behind can be used again.
func (o *owner) take(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, o.uid, o.gid)
	})
}

// canEnter says which parent of path the owner cannot pass, as an error an operator can act on.
func (o *owner) canEnter(path string) error {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if !o.mayPass(info) {
			return fmt.Errorf("user %s cannot enter %s, so it cannot reach %s: choose another place", o.name, dir, path)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (o *owner) mayPass(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if int(stat.Uid) == o.uid {
			return mode&0o100 != 0
		}
		if int(stat.Gid) == o.gid {
			return mode&0o010 != 0
		}
	}
	return mode&0o001 != 0
}
