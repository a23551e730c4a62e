// Package embedded starts the servers Hubstate needs on this machine: for `make run`, and as the last step of
// internal/testenv when neither a URL nor a container is to be had.
//
// Two kinds stand side by side:
//
//   - Real servers (PostgreSQL, Mosquitto, Kafka, Redis) run as child processes. Each is a [Process]: it can be killed,
//     paused, resumed and restarted on the same port and data, which is what the crash tests are made of.
//   - In-process twins (StartBroker, StartKfake, StartMiniredis) need nothing installed. They are not the real thing:
//     what they promise is written at each of them, and the contract tests of this package hold both kinds to it.
//
// Lifetimes. A child lives in its own process group, so a Ctrl-C typed at the parent does not reach it first: the parent
// stops its children itself, in the order it wants. When the parent dies without doing so, Linux signals the child
// (see process_linux.go); a server is never left behind. Data directories are locked while in use.
//
// Everything listens on loopback only. PostgreSQL refuses to run as root, so a root caller hands its data directory to
// another user (see owner.go).
package embedded
