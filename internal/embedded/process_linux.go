package embedded

import "syscall"

// childAttributes puts the child into its own process group, lets it die with its parent, and drops to owner.
func childAttributes(o *owner, stop syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: stop}
	if o != nil {
		attr.Credential = o.credential()
	}
	return attr
}
