package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KfakeOptions says how StartKfake runs.
type KfakeOptions struct {
	// Dir keeps topics, records and groups; empty: in memory only.
	Dir string
	// Port on 127.0.0.1; 0 is a free one.
	Port int
}

// Kfake is a Kafka broker inside this process (franz-go's kfake): one node, no replication, and with Dir its data
// survive a SIGKILL of this process but not a power cut, like one real broker's.
type Kfake struct {
	cluster *kfake.Cluster
	lock    *dirLock // nil without Dir
}

// StartKfake starts the broker; it takes connections when StartKfake returns. Topics are not made by themselves.
func StartKfake(_ context.Context, opts KfakeOptions) (*Kfake, error) {
	port, err := portOr(opts.Port)
	if err != nil {
		return nil, err
	}
	k := &Kfake{}
	settings := []kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(port), kfake.ClusterID("hubstate-local"),
		kfake.WithLogger(kfake.BasicLogger(io.Discard, kfake.LogLevelNone)),
		// Retention is looked at every hour by default.
		kfake.BrokerConfigs(map[string]string{"log.cleaner.backoff.ms": "10000"}),
	}
	if opts.Dir != "" {
		dir, lock, err := claimDir(opts.Dir)
		if err != nil {
			return nil, fmt.Errorf("start fake Kafka: %w", err)
		}
		k.lock = lock
		settings = append(settings, kfake.DataDir(dir))
	}
	if k.cluster, err = kfake.NewCluster(settings...); err != nil {
		return nil, errors.Join(fmt.Errorf("start fake Kafka: %w", err), k.unlock())
	}
	return k, nil
}

// Brokers is the one address, host:port.
func (k *Kfake) Brokers() []string { return k.cluster.ListenAddrs() }

// Stop closes all connections and writes what is open to disk. It may be called once.
func (k *Kfake) Stop(context.Context) error {
	k.cluster.Close()
	return k.unlock()
}

func (k *Kfake) unlock() error {
	if k.lock == nil {
		return nil
	}
	return k.lock.release()
}
