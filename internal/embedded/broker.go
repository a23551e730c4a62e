package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	badgerdb "github.com/dgraph-io/badger/v4"
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/hooks/storage/badger"
	"github.com/mochi-mqtt/server/v2/listeners"
)

// The limits of a session, see BrokerOptions.
const (
	defaultWindow = 1000
	defaultQueue  = 60000
)

// BrokerOptions says how StartBroker runs.
type BrokerOptions struct {
	// Dir keeps sessions, queues and retained messages; empty: in memory only.
	Dir string
	// Port on 127.0.0.1; 0 is a free one.
	Port int
	// Window is how many unacknowledged messages a connected session may have before its publishers wait; 0 is 1000.
	Window int
	// Queue is the same for a session that is away, at most 60000; 0 is 60000.
	Queue int
	// Log takes the broker's own errors; nil: nowhere.
	Log *slog.Logger
}

// Broker is an MQTT broker inside this process: mochi with a guard (guard.go) that makes its QoS 1 honest. What it
// promises to QoS 1, held to by the contract tests of this package:
//
//   - Acknowledged is delivered: PUBACK follows the queueing of the message for every matching persistent session, on
//     disk when Dir is set, so that also a SIGKILL of this process loses nothing (a power cut may).
//   - Messages of one publisher reach a session in order at first sight, also over reconnects.
//   - Overload is pressure: a session at its limit makes its publishers wait; nothing is dropped. Hence a session that
//     nobody comes back to blocks its publishers once its queue is full. Publishers that wait longer than 1.5 times
//     their keepalive are disconnected, and publish again.
//
// It does not queue QoS 0 for a session that is away, and shared subscriptions are not guarded.
type Broker struct {
	server *mqtt.Server
	port   int
	lock   *dirLock // nil without Dir
}

// StartBroker starts the broker; it takes connections when StartBroker returns.
func StartBroker(_ context.Context, opts BrokerOptions) (*Broker, error) {
	b := &Broker{}
	var err error
	if b.port, err = portOr(opts.Port); err != nil {
		return nil, err
	}
	if opts.Dir != "" {
		if opts.Dir, b.lock, err = claimDir(opts.Dir); err != nil {
			return nil, fmt.Errorf("start MQTT broker: %w", err)
		}
	}
	if err := b.serve(opts); err != nil {
		return nil, errors.Join(fmt.Errorf("start MQTT broker: %w", err), b.unlock())
	}
	return b, nil
}

// URL is mqtt://127.0.0.1:port.
func (b *Broker) URL() string { return "mqtt://" + loopback(b.port) }

// Connected is the number of clients that are connected now.
func (b *Broker) Connected() int {
	n := 0
	for _, client := range b.server.Clients.GetAll() {
		if !client.Net.Inline && !client.Closed() {
			n++
		}
	}
	return n
}

// Stop disconnects all clients and closes the store. It may be called once.
func (b *Broker) Stop(context.Context) error {
	return errors.Join(b.server.Close(), b.unlock())
}

func (b *Broker) unlock() error {
	if b.lock == nil {
		return nil
	}
	return b.lock.release()
}

func (b *Broker) serve(opts BrokerOptions) error {
	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumInflight = 65535
	// The guard's order numbers look like times far in the future; an expiry by age would misread them.
	capabilities.MaximumMessageExpiryInterval = 0
	b.server = mqtt.New(&mqtt.Options{
		Capabilities: capabilities, Logger: brokerLog(opts.Log), SysTopicResendInterval: 10,
		ClientNetReadBufferSize: 16 << 10, ClientNetWriteBufferSize: 16 << 10,
	})
	guard := newGuard(b.server, cmp.Or(opts.Window, defaultWindow), min(cmp.Or(opts.Queue, defaultQueue), defaultQueue))
	if err := errors.Join(b.server.AddHook(new(auth.AllowHook), nil), b.server.AddHook(guard, nil)); err != nil {
		return err
	}
	if opts.Dir != "" {
		if err := b.server.AddHook(new(badger.Hook), badgerOptions(opts.Dir)); err != nil {
			return err
		}
	}
	listener := listeners.NewTCP(listeners.Config{ID: "loopback", Address: loopback(b.port)})
	if err := b.server.AddListener(listener); err != nil {
		return err
	}
	return b.server.Serve()
}

// badgerOptions keeps the store small: its defaults reserve several hundred megabytes. Writes go to the page cache, which
// a killed process does not take with it.
func badgerOptions(dir string) *badger.Options {
	opts := badgerdb.DefaultOptions(filepath.Join(dir, "badger")).
		WithSyncWrites(false).WithMemTableSize(16 << 20).WithNumMemtables(2).WithNumLevelZeroTables(2).
		WithNumLevelZeroTablesStall(6).WithNumCompactors(2).WithBlockCacheSize(8 << 20).WithIndexCacheSize(8 << 20).
		WithValueLogFileSize(64 << 20).WithMetricsEnabled(false)
	return &badger.Options{Options: &opts, Path: opts.Dir}
}

// brokerLog passes errors on. A warning is every connection that ends without DISCONNECT; below that the broker logs every
// connection, badger every compaction.
func brokerLog(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(atLeast{Handler: log.Handler(), level: slog.LevelError})
}

// atLeast raises the level of a handler.
type atLeast struct {
	slog.Handler
	level slog.Level
}

// Enabled implements slog.Handler.
func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

// WithAttrs implements slog.Handler.
func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{Handler: h.Handler.WithAttrs(attrs), level: h.level}
}

// WithGroup implements slog.Handler.
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{Handler: h.Handler.WithGroup(name), level: h.level}
}
