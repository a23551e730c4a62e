//go:build !mutant

// Package mutant switches single guarantees off, to prove that the tests and the oracle notice. Ordinary builds compile
// every switch to false; builds with the tag `mutant` read HUBSTATE_MUTANT.
package mutant

// On reports whether the named guarantee is switched off. It is always false in this build.
func On(string) bool { return false }
