// Package lint holds the house rules of Hubstate as a test: what may import what, how long a function may grow, which
// names a metric may bear, which alert owes a runbook. STYLE is prose and prose is forgotten at night; a failing test is not.
//
// # How it works
//
// [Load] reads the work tree once (tracked files and new ones that Git does not ignore) and parses each Go file with
// its comments. Every [Rule] is a pure function over that [Tree]: no type checking, no network, no build, so the whole
// set runs in well under a second and a rule is a page long.
//
// Syntax is less than types: a rule that cannot decide says so as a violation rather than keeping silent (a metric name
// that is not a constant, for example, is a violation, not an unknown).
//
// # How a rule is trusted
//
// Each rule has a mutation in testdata/<rule>.txtar: a tiny tree that breaks it, in which each bad line carries the
// marker "want: part of the message". The test demands exactly those violations, at those lines, and nothing else, so it
// fails when the rule grows blind and also when it cries wolf. A rule without a mutation fails the test.
//
// # How to change one
//
// A new package needs a line in arrows.go; that is the point where its place in the architecture is decided. An
// exception belongs in the rule, next to a comment that says why, never in the code that breaks it.
package lint
