//go:build !linux

package embedded

import "syscall"

// childAttributes puts the child into its own process group and drops to owner. Without a parent-death signal a server
// outlives a parent that was killed; the next start on the same data directory stops it.
func childAttributes(o *owner, _ syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if o != nil {
		attr.Credential = o.credential()
	}
	return attr
}
