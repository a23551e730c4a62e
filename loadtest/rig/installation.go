package rig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/internal/embedded"
)

// Installation is where the parts are. With addresses given from outside it has no components.
type Installation struct {
	MQTT     string
	Database string
	Kafka    []string
	Topic    string
	Redis    string
	Screen   string // base address of the monitor; empty when none runs

	dir        string
	log        *slog.Logger
	components map[string][]Component
	closers    []func(context.Context) error
}

// Parts says how many of what runs, and how it is configured.
type Parts struct {
	Ingest       int               `yaml:"ingest" json:"ingest"`               // default 1
	Relay        int               `yaml:"relay" json:"relay"`                 // default 2
	Monitor      int               `yaml:"monitor" json:"monitor"`             // default 0
	KafkaNodes   int               `yaml:"kafka_nodes" json:"kafka_nodes"`     // 1 or 3; default 1
	Partitions   int               `yaml:"partitions" json:"partitions"`       // of the topic; default: the product's
	Buckets      int               `yaml:"buckets" json:"buckets"`             // default: the product's
	PostgreSQL   int               `yaml:"postgresql" json:"postgresql"`       // major version; default the newest found
	IngestConfig map[string]string `yaml:"ingest_config" json:"ingest_config"` // keys of `ingest config`, besides the sessions
	RelayConfig  map[string]string `yaml:"relay_config" json:"relay_config"`
	// RelayMembers are further keys of each relay in turn: members of one cell may be configured differently.
	RelayMembers []map[string]string `yaml:"relay_members" json:"relay_members,omitempty"`
}

// WithDefaults returns p with every zero replaced by its default.
func (p Parts) WithDefaults() Parts {
	if p.Ingest == 0 {
		p.Ingest = 1
	}
	if p.Relay == 0 {
		p.Relay = 2
	}
	if p.KafkaNodes == 0 {
		p.KafkaNodes = 1
	}
	return p
}

// relay is the configuration of the i-th relay.
func (p Parts) relay(i int) map[string]string {
	config := maps.Clone(p.RelayConfig)
	if i < len(p.RelayMembers) {
		if config == nil {
			config = map[string]string{}
		}
		maps.Copy(config, p.RelayMembers[i])
	}
	return config
}

// Options says how Start works.
type Options struct {
	Parts Parts
	Hubs  int    // one ingest session each
	Dir   string // for data, configuration and logs
	Bin   string // where the product's binaries are; empty: beside this one
	Topic string
	Env   []string // added to the environment of the product's daemons
	Log   *slog.Logger
}

// Start starts everything and returns when all of it is ready. Close it, also after an error.
func Start(ctx context.Context, opts Options) (*Installation, error) {
	opts.Parts = opts.Parts.WithDefaults()
	in := &Installation{Topic: opts.Topic, dir: opts.Dir, log: opts.Log}
	if err := in.startServers(ctx, opts.Parts); err != nil {
		return in, err
	}
	d := daemons{in: in, opts: opts}
	return in, d.start(ctx)
}

// startServers starts the four servers side by side.
func (in *Installation) startServers(ctx context.Context, parts Parts) error {
	var pg *embedded.Postgres
	var kafka *embedded.Kafka
	var broker *embedded.Mosquitto
	var redis *embedded.Redis
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		pg, err = embedded.StartPostgres(ctx, embedded.PostgresOptions{DataDir: filepath.Join(in.dir, Postgres), Version: parts.PostgreSQL})
		return err
	})
	group.Go(func() (err error) {
		kafka, err = embedded.StartKafka(ctx, embedded.KafkaOptions{Dir: filepath.Join(in.dir, Kafka), Nodes: parts.KafkaNodes})
		return err
	})
	group.Go(func() (err error) {
		broker, err = embedded.StartMosquitto(ctx, embedded.MosquittoOptions{Dir: filepath.Join(in.dir, Mosquitto)})
		return err
	})
	group.Go(func() (err error) {
		redis, err = embedded.StartRedis(ctx, embedded.RedisOptions{Dir: filepath.Join(in.dir, Redis)})
		return err
	})
	err := group.Wait()
	if pg != nil {
		in.Database = pg.URL()
		in.add(Postgres, server{pg.Process})
		in.closers = append(in.closers, pg.Stop)
	}
	if kafka != nil {
		in.Kafka = kafka.Brokers()
		for i := range kafka.Nodes() {
			in.add(Kafka, server{kafka.Node(i)})
		}
		in.closers = append(in.closers, kafka.Stop)
	}
	if broker != nil {
		in.MQTT = broker.URL()
		in.add(Mosquitto, server{broker.Process})
		in.closers = append(in.closers, broker.Stop)
	}
	if redis != nil {
		in.Redis = redis.URL()
		in.add(Redis, server{redis.Process})
		in.closers = append(in.closers, redis.Stop)
	}
	return err
}

// Close stops what Start started, the daemons first.
func (in *Installation) Close(ctx context.Context) error {
	var group errgroup.Group
	for _, name := range []string{Ingest, Relay, Monitor} {
		for _, c := range in.components[name] {
			group.Go(func() error { return errors.Join(c.Resume(), c.Terminate(ctx)) })
		}
	}
	err := group.Wait()
	for _, stop := range slices.Backward(in.closers) {
		group.Go(func() error { return stop(ctx) })
	}
	return errors.Join(err, group.Wait())
}

// Processes lists the running components with their process ids, for sampling.
func (in *Installation) Processes() map[string]int {
	all := map[string]int{}
	for name, members := range in.components {
		if strings.Contains(name, "/") {
			all[name] = members[0].PID()
		}
	}
	return all
}

// Exits counts how often daemons ended although nobody stopped them.
func (in *Installation) Exits() map[string]int {
	all := map[string]int{}
	for name, members := range in.components {
		if d, ok := members[0].(*daemon); ok && strings.Contains(name, "/") {
			d.mu.Lock()
			if d.exits > 0 {
				all[name] = d.exits
			}
			d.mu.Unlock()
		}
	}
	return all
}

// KafkaBytes is what the brokers' logs occupy on disk; 0 when they are not ours.
func (in *Installation) KafkaBytes() int64 {
	if in.components[Kafka] == nil {
		return 0
	}
	logs, _ := filepath.Glob(filepath.Join(in.dir, Kafka, "*", "*", in.Topic+"-*", "*.log"))
	var total int64
	for _, path := range logs {
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
		}
	}
	return total
}

func (in *Installation) logPath(name string) string {
	return filepath.Join(in.dir, strings.ReplaceAll(name, "/", "-")+".log")
}

// daemons starts the product's binaries.
type daemons struct {
	in   *Installation
	opts Options
}

func (d *daemons) start(ctx context.Context) error {
	if err := d.migrate(ctx); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	return errors.Join(d.launchAll(ctx, group), group.Wait())
}

func (d *daemons) launchAll(ctx context.Context, group *errgroup.Group) error {
	parts := d.opts.Parts
	for i := range parts.Relay {
		if err := d.launch(ctx, group, Relay, i, parts.relay(i), ""); err != nil {
			return err
		}
	}
	for i := range parts.Ingest {
		config, err := d.sessions(i)
		if err != nil {
			return err
		}
		if err := d.launch(ctx, group, Ingest, i, parts.IngestConfig, config); err != nil {
			return err
		}
	}
	for i := range parts.Monitor {
		if err := d.launch(ctx, group, Monitor, i, nil, ""); err != nil {
			return err
		}
	}
	return nil
}

// launch registers one daemon and starts it in the group.
func (d *daemons) launch(ctx context.Context, group *errgroup.Group, name string, i int, config map[string]string, file string) error {
	daemon, err := d.makeDaemon(name, i, config, file)
	if err == nil {
		group.Go(func() error { return daemon.Start(ctx) })
	}
	return err
}

// register makes one daemon known without starting it.
func (d *daemons) register(name string, i int, config map[string]string) error {
	_, err := d.makeDaemon(name, i, config, "")
	return err
}

func (d *daemons) makeDaemon(name string, i int, config map[string]string, file string) (*daemon, error) {
	path, err := findBinary(d.opts.Bin, name)
	if err != nil {
		return nil, err
	}
	port, err := embedded.FreePort()
	if err != nil {
		return nil, err
	}
	member := fmt.Sprintf("%s/%d", name, i+1)
	daemon := &daemon{name: member, path: path, args: []string{"run"}, log: d.in.logPath(member), admin: fmt.Sprintf("127.0.0.1:%d", port)}
	daemon.env = d.environment(strings.ReplaceAll(member, "/", "-"), daemon.admin, config)
	if file != "" {
		daemon.env = append(daemon.env, "HUBSTATE_CONFIG="+file)
	}
	if name == Monitor {
		if err := d.givePage(daemon); err != nil {
			return nil, err
		}
	}
	d.in.add(name, daemon)
	return daemon, nil
}

// givePage lets a monitor serve its page on a port of its own.
func (d *daemons) givePage(monitor *daemon) error {
	port, err := embedded.FreePort()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	monitor.env = append(monitor.env, "HUBSTATE_PAGE_ADDR="+address)
	d.in.Screen = "http://" + address
	return nil
}

// StartForRelay starts PostgreSQL and Kafka, migrated, and registers one relay without starting it.
func StartForRelay(ctx context.Context, opts Options) (*Installation, error) {
	opts.Parts = opts.Parts.WithDefaults()
	in := &Installation{Topic: opts.Topic, dir: opts.Dir, log: opts.Log}
	pg, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{DataDir: filepath.Join(in.dir, Postgres)})
	if err != nil {
		return in, err
	}
	in.Database, in.closers = pg.URL(), append(in.closers, pg.Stop)
	in.add(Postgres, server{pg.Process})
	kafka, err := embedded.StartKafka(ctx, embedded.KafkaOptions{Dir: filepath.Join(in.dir, Kafka)})
	if err != nil {
		return in, err
	}
	in.Kafka, in.closers = kafka.Brokers(), append(in.closers, kafka.Stop)
	in.add(Kafka, server{kafka.Node(0)})
	d := daemons{in: in, opts: opts}
	if err := d.migrate(ctx); err != nil {
		return in, err
	}
	return in, d.register(Relay, 0, nil)
}
