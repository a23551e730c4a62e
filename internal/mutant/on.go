//go:build mutant

// Package mutant switches single guarantees off, to prove that the tests and the oracle notice.
package mutant

import (
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

var names atomic.Pointer[[]string]

// Set replaces the list of HUBSTATE_MUTANT; safe for concurrent use.
func Set(list ...string) { names.Store(&list) }

// On reports whether the named guarantee is switched off.
func On(name string) bool {
	list := names.Load()
	if list == nil {
		fromEnv := strings.Split(os.Getenv("HUBSTATE_MUTANT"), ",")
		list = &fromEnv
		names.CompareAndSwap(nil, list)
	}
	return slices.Contains(*list, name)
}
