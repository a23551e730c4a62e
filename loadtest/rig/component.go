package rig

import (
	"context"
	"fmt"

	"github.com/hubstate/hubstate/internal/embedded"
)

// Component is one process that can be broken and mended. Its methods may be called from several goroutines.
type Component interface {
	// Kill ends it at once with SIGKILL; Terminate asks it to end, and waits.
	Kill() error
	Terminate(ctx context.Context) error
	// Start starts it again on the same address and data, and returns when it answers.
	Start(ctx context.Context) error
	// Pause stops all its processes with SIGSTOP; Resume lets them go on.
	Pause() error
	Resume() error
	PID() int
}

// server is a Component made of an embedded server.
type server struct{ *embedded.Process }

// Terminate implements Component.
func (s server) Terminate(ctx context.Context) error { return s.Process.Stop(ctx) }

// Start implements Component.
func (s server) Start(ctx context.Context) error { return s.Process.Restart(ctx) }

// Names of the components. Ingest and relay may have several members, numbered from 1: relay/2.
const (
	Ingest    = "ingest"
	Relay     = "relay"
	Monitor   = "monitor"
	Postgres  = "postgres"
	Kafka     = "kafka"
	Mosquitto = "mosquitto"
	Redis     = "redis"
)

// Members returns the components of a name: one of "relay/2", all of "relay".
func (in *Installation) Members(name string) ([]Component, error) {
	if members := in.components[name]; len(members) > 0 {
		return members, nil
	}
	return nil, fmt.Errorf("component %q is not run by this load test", name)
}

func (in *Installation) add(name string, c Component) {
	if in.components == nil {
		in.components = map[string][]Component{}
	}
	in.components[name] = append(in.components[name], c)
	in.components[fmt.Sprintf("%s/%d", name, len(in.components[name]))] = []Component{c}
}
