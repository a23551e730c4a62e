package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/schema"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// config holds the keys of all commands, so that one file serves them all; a command offers as flags only the groups it
// uses. See docs/cli.md.
type config struct {
	Database
	Kafka
	Cell
	Engine
	Partitions
	Daemon
}

// Database is where the outbox lies.
type Database struct {
	URL string `koanf:"database_url" help:"PostgreSQL of the cell, postgres://user:password@host:port/database" secret:"true"`
}

// Kafka is how to reach the brokers; see outbox.KafkaConfig.
type Kafka struct {
	Brokers      []string `koanf:"kafka_brokers" help:"Kafka seed brokers, comma list of host:port"`
	ClientID     string   `koanf:"kafka_client_id" help:"name of this client in the brokers' logs and quotas"`
	Mechanism    string   `koanf:"kafka_sasl_mechanism" help:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty with a username means the last"`
	Username     string   `koanf:"kafka_username" help:"user of the Kafka login"`
	Password     string   `koanf:"kafka_password" help:"password of the Kafka login; better in kafka_password_file" secret:"true"`
	PasswordFile string   `koanf:"kafka_password_file" help:"file with the password, read at each login"`
	TLS          bool     `koanf:"kafka_tls" help:"encrypt the connections to Kafka"`
	CAFile       string   `koanf:"kafka_ca_file" help:"PEM of the authorities to trust; implies kafka_tls"`
	CertFile     string   `koanf:"kafka_cert_file" help:"PEM of the client's certificate; implies kafka_tls"`
	KeyFile      string   `koanf:"kafka_key_file" help:"PEM of the certificate's key"`
	ServerName   string   `koanf:"kafka_server_name" help:"name expected in the brokers' certificates"`
	Compression  string   `koanf:"kafka_compression" help:"snappy, lz4, zstd, gzip or none"`
}

// Cell is what `relay migrate` records once; the other commands read it from the database.
type Cell struct {
	Name        string `koanf:"cell" help:"name of this database among all that write to the topic"`
	Buckets     int    `koanf:"buckets" help:"outbox buckets, 1..4096; fixed once recorded"`
	Topic       string `koanf:"kafka_topic" help:"Kafka topic; fixed once recorded"`
	Partitions  int    `koanf:"topic_partitions" help:"partitions of the topic, a divisor of buckets; fixed once recorded"`
	Replication int    `koanf:"topic_replication" help:"replicas of the topic when it is made; 0 = as many as there are brokers, at most 3"`
}

// Engine is how the relay works; see outbox.Config, which has the defaults of zero values.
type Engine struct {
	Instance         string        `koanf:"instance" help:"name of this relay among those of its cell"`
	LeaseTTL         time.Duration `koanf:"lease_ttl" help:"a silent relay is taken over after this long"`
	WindowRows       int           `koanf:"window_rows" help:"rows per bucket that are published at once, 1..8192"`
	MemoryBytes      int64         `koanf:"memory_bytes" help:"bytes of rows read and not yet acknowledged"`
	PollMin          time.Duration `koanf:"poll_min" help:"pause after a poll that found little"`
	PollMax          time.Duration `koanf:"poll_max" help:"pause that idle polling backs off to while ingest's bell is not heard"`
	PollIdle         time.Duration `koanf:"poll_idle" help:"the same while the bell is heard"`
	HandOver         time.Duration `koanf:"hand_over" help:"how long a released bucket waits for its own acknowledgements; 0 = half of lease_ttl"`
	OnDead           string        `koanf:"on_dead" help:"continue: a device's later events flow past a dead one; hold: they wait for the decision"`
	Backlog          string        `koanf:"backlog" help:"all: publish every event of a backlog; latest: only the newest per stream"`
	BacklogAge       time.Duration `koanf:"backlog_age" help:"age of the oldest event from which backlog: latest acts, on a bucket with more than window_rows waiting"`
	Standby          string        `koanf:"standby" help:"publish only what the standby with this application_name has flushed; empty = do not wait"`
	RecordsPerSecond int           `koanf:"records_per_second" help:"limit while catching up; 0 = none"`
	BytesPerSecond   int           `koanf:"bytes_per_second" help:"limit while catching up; 0 = none"`
}

// Partitions is how the outbox is cut by time; see partitions.Spec, which has the defaults of zero values.
type Partitions struct {
	MaintainerURL string        `koanf:"maintainer_database_url" help:"session connection for the partitions' maintainer when database_url goes through a transaction pooler" secret:"true"`
	Interval      time.Duration `koanf:"partition_interval" help:"span of one partition, whole minutes"`
	Runway        time.Duration `koanf:"partition_runway" help:"how far ahead tables stand ready"`
	RetainSent    time.Duration `koanf:"retain_sent" help:"how long published events are kept after their partition ended"`
	RetainDead    time.Duration `koanf:"retain_dead" help:"how long decided dead letters are kept; undecided ones are never deleted"`
	RetainRejects time.Duration `koanf:"retain_rejects" help:"how long rejected reports and gap records are kept"`
	RetainAudit   time.Duration `koanf:"retain_audit" help:"how long the audit is kept"`
	KeepAll       bool          `koanf:"partitions_keep_all" help:"never drop a partition that holds rows"`
	ArchiveDir    string        `koanf:"archive_dir" help:"directory for Parquet archives; nothing is dropped before its archive is verified"`
}

// Daemon is what all daemons have.
type Daemon struct {
	AdminAddr string `koanf:"admin_addr" help:"address of /metrics, /healthz and /readyz; empty = none"`
	Pprof     bool   `koanf:"pprof" help:"serve /debug/pprof on admin_addr"`
	LogLevel  string `koanf:"log_level" help:"debug, info, warn or error"`
	LogFormat string `koanf:"log_format" help:"text or json"`
}

func newConfig() *config {
	cell := schema.DefaultSettings()
	return &config{
		Kafka: Kafka{ClientID: "hubstate-relay", Compression: "snappy"},
		Cell:  Cell{Name: cell.Cell, Buckets: cell.Buckets, Topic: cell.Topic, Partitions: cell.TopicPartitions},
		Engine: Engine{
			Instance: hostname(), LeaseTTL: 6 * time.Second, WindowRows: 512, MemoryBytes: 48 << 20,
			PollMin: 5 * time.Millisecond, PollMax: 100 * time.Millisecond, PollIdle: time.Second,
			OnDead: string(outbox.DeadContinue), Backlog: string(outbox.BacklogAll), BacklogAge: time.Minute,
		},
		Partitions: Partitions{
			Interval: time.Hour, Runway: 48 * time.Hour, RetainSent: 7 * 24 * time.Hour, RetainDead: 90 * 24 * time.Hour,
			RetainRejects: 30 * 24 * time.Hour, RetainAudit: 365 * 24 * time.Hour,
		},
		Daemon: Daemon{AdminAddr: "127.0.0.1:9102", LogLevel: "info", LogFormat: "text"},
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "relay"
	}
	return name
}

// flags offers the given groups of keys, pointers into c, as flags of cmd.
func (c *config) flags(cmd *cobra.Command, groups ...any) {
	for _, group := range groups {
		ops.AddFlags(cmd.Flags(), group)
	}
}

// load fills c and checks what every command needs.
func (c *config) load(cmd *cobra.Command) error {
	if err := ops.Load(cmd.Flags(), c); err != nil {
		return err
	}
	var p ops.Problems
	p.Require("database_url", c.URL)
	return p.Err()
}

// validateRun checks everything that `relay run` needs, without connecting to anything.
func (c *config) validateRun() error {
	var p ops.Problems
	p.Require("database_url", c.URL)
	p.Merge("", errors.Join(c.kafka().Validate(), c.validatePartitions(), c.engine(c.settings()).Validate()))
	if c.AdminAddr != "" {
		p.HostPort("admin_addr", c.AdminAddr)
	}
	p.OneOf("log_level", c.LogLevel, "debug", "info", "warn", "error")
	p.OneOf("log_format", c.LogFormat, "text", "json")
	return p.Err()
}

func (c *config) kafka() outbox.KafkaConfig {
	k := c.Kafka
	return outbox.KafkaConfig{
		Brokers: k.Brokers, ClientID: k.ClientID, SASLMechanism: k.Mechanism, Username: k.Username, Password: k.Password,
		PasswordFile: k.PasswordFile, TLS: k.TLS, CAFile: k.CAFile, CertFile: k.CertFile, KeyFile: k.KeyFile,
		ServerName: k.ServerName, Compression: k.Compression,
	}
}

func (c *config) settings() schema.Settings {
	return schema.Settings{Cell: c.Cell.Name, Buckets: c.Buckets, Topic: c.Topic, TopicPartitions: c.Cell.Partitions}
}

func (c *config) engine(s schema.Settings) outbox.Config {
	e := c.Engine
	return outbox.Config{
		Instance: e.Instance, Cell: s.Cell, Buckets: s.Buckets, Topic: s.Topic, TopicPartitions: s.TopicPartitions,
		TTL: e.LeaseTTL, WindowRows: e.WindowRows, MemoryBytes: e.MemoryBytes, PollMin: e.PollMin, PollMax: e.PollMax, PollIdle: e.PollIdle,
		HandOver: e.HandOver, OnDead: outbox.OnDead(e.OnDead), Backlog: outbox.Backlog(e.Backlog), BacklogAge: e.BacklogAge, Standby: e.Standby,
		RecordsPerSecond: e.RecordsPerSecond, BytesPerSecond: e.BytesPerSecond,
	}
}

// connect opens a session with the rights of role; an empty role keeps those of the login.
func (c *config) connect(ctx context.Context, role string) (*pgx.Conn, error) {
	return ops.OpenConn(ctx, c.URL, role, "hubstate-relay", map[string]string{"TimeZone": "UTC"})
}

// reader opens a session that cannot write, with the rights of the login: any of the group roles may look.
func (c *config) reader(ctx context.Context) (*pgx.Conn, error) {
	return ops.OpenConn(ctx, c.URL, "", "hubstate-relay", map[string]string{"TimeZone": "UTC", "default_transaction_read_only": "on"})
}

func (c *config) logger(cmd *cobra.Command) (*slog.Logger, error) {
	return ops.NewLogger(cmd.ErrOrStderr(), c.LogLevel, c.LogFormat)
}

// checkSchema reads the recorded settings and refuses a configured topic that is another one.
func (c *config) checkSchema(ctx context.Context, cmd *cobra.Command, conn schema.Querier) (schema.Settings, error) {
	s, err := schema.Check(ctx, conn)
	if err != nil {
		return s, err
	}
	if c.Topic != s.Topic && (cmd.Flags().Changed("kafka-topic") || os.Getenv("HUBSTATE_KAFKA_TOPIC") != "") {
		return s, fmt.Errorf("kafka_topic = %q: the database has recorded %q; a cell keeps its topic", c.Topic, s.Topic)
	}
	return s, nil
}

// refuse turns the problems of err into a refused configuration (exit code 2).
func refuse(errs ...error) error {
	var p ops.Problems
	p.Merge("", errors.Join(errs...))
	return p.Err()
}
