// Package devicestate is the domain: what a device reported, what that does to the state of its stream, and the event
// that tells others. It is pure: standard library only, no I/O, every instant is an argument.
//
// # Device, stream, counter, sequence
//
// A device publishes one or more streams (state, connection, …). All that follows is per (device, stream).
//
// The counter is the device's own number in a report, with the device's own boot if it sends one. It may reset, wrap,
// jump or be missing. It decides whether a report is new, and shows what was lost before us (a gap).
//
// The sequence is ours: dense, +1 per emitted event, assigned inside the transaction that stores the event. It never
// resets; in front of it stands the epoch, raised only when the past was changed under us. A hole in the sequence means
// loss inside the pipeline. Consumers drop what is not above the last (epoch, sequence) they saw: see Position.
//
// # The path of a report
//
//	topic, payload ── Matcher.Match ──▶ Route ── Route.Parse ──▶ Report ── Fold (Next for each) ──▶ Decision ── AppendEvent
//
// Bad input never panics and never fails its neighbours: Match and Parse return a *Reject that names the field and the
// limit; Next returns the class Quarantined.
//
// Next is the only place that decides what a report does to a stream (promise D1). Its rows are numbered as in
// docs/architecture.md and the first that matches wins.
package devicestate
