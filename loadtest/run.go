package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/rig"
)

// settings are the flags of run and verify, and their keys in file and environment.
type settings struct {
	Config       string        `koanf:"config" help:"YAML file with any of these keys"`
	Scenario     string        `koanf:"scenario" help:"a shipped scenario (see: loadtest scenarios) or the path of a file"`
	Seed         uint64        `koanf:"seed" help:"of everything random; 0 takes one from the clock"`
	Rate         float64       `koanf:"rate" help:"reports per second, instead of the scenario's"`
	Devices      int           `koanf:"devices" help:"number of devices, instead of the scenario's"`
	Duration     time.Duration `koanf:"duration" help:"how long reports are due, instead of the scenario's"`
	Kill         []string      `koanf:"kill" help:"components to kill (SIGKILL) and start again, again and again: ingest,relay"`
	Every        time.Duration `koanf:"every" help:"how often --kill strikes"`
	Cells        []string      `koanf:"cells" help:"of a matrix only these: ingest/kill,relay"`
	JSON         bool          `koanf:"json" help:"end with one JSON object on standard output"`
	Keep         string        `koanf:"keep" help:"keep data, logs, ledger and results in this directory"`
	Bin          string        `koanf:"bin" help:"where the programs ingest, relay and monitor are; default beside this one"`
	DatabaseURL  string        `koanf:"database_url" help:"PostgreSQL of an existing installation"`
	MQTTURL      string        `koanf:"mqtt_url" help:"MQTT broker of an existing installation"`
	KafkaBrokers []string      `koanf:"kafka_brokers" help:"Kafka of an existing installation"`
	KafkaTopic   string        `koanf:"kafka_topic" help:"topic of the events"`
	RedisURL     string        `koanf:"redis_url" help:"Redis for the consumer under test of an existing installation"`
}

func defaultSettings() settings {
	return settings{Scenario: "smoke", Every: 3 * time.Second, KafkaTopic: "device-state"}
}

// external reports whether an installation was named; naming a part of one is a mistake.
func (s *settings) external() (bool, error) {
	given := 0
	for _, set := range []bool{s.DatabaseURL != "", s.MQTTURL != "", len(s.KafkaBrokers) > 0, s.RedisURL != ""} {
		if set {
			given++
		}
	}
	if given != 0 && given != 4 {
		return false, ops.UsageError(errors.New("an installation needs all of database_url, mqtt_url, kafka_brokers and redis_url; without any of them one is started here"))
	}
	return given == 4, nil
}

// scenario reads the scenario and lays the flags over it.
func (s *settings) scenario() (Scenario, error) {
	sc, err := loadScenario(s.Scenario)
	if err != nil {
		return sc, ops.UsageError(err)
	}
	if s.Rate > 0 {
		sc.Load.Rate = s.Rate
	}
	if s.Devices > 0 {
		sc.Load.Devices = s.Devices
	}
	if s.Duration > 0 {
		sc.Load.Duration = s.Duration
	}
	if len(s.Kill) > 0 {
		sc.Faults = append(sc.Faults, rig.Fault{At: s.Every, Every: s.Every, Do: rig.DoKill, On: s.Kill})
	}
	sc = sc.withDefaults()
	return sc, sc.validate()
}

func newRunCommand() *cobra.Command {
	s := defaultSettings()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run a scenario and account for every report",
		Long: `Run a scenario and account for every report.

Exits with 1 when anything acknowledged is lost, anything arrives out of order, or anything else the oracle checks is wrong.`,
		Example: "  loadtest run --scenario smoke --json\n  loadtest run --scenario smoke --kill ingest,relay --every 3s --keep /tmp/run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ops.Load(cmd.Flags(), &s); err != nil {
				return err
			}
			return runScenario(cmd.Context(), s, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	ops.AddFlags(cmd.Flags(), &s)
	return cmd
}

// errWrong is returned when a run was completed and condemned.
var errWrong = errors.New("the oracle condemns this run")

func runScenario(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	sc, err := s.scenario()
	if err != nil {
		return err
	}
	if s.Seed == 0 {
		s.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	dir, release, err := workingDir(s.Keep)
	if err != nil {
		return err
	}
	defer release()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	in, err := s.installation(ctx, sc, dir, log, stderr)
	defer func() { closeQuietly(ctx, in, log) }()
	if err != nil {
		return err
	}
	b := bench{scenario: sc, seed: s.Seed, in: in, log: log, out: stderr, dir: dir, ownServers: !s.given()}
	if sc.Matrix != nil {
		return runMatrix(ctx, b, s, stdout, stderr)
	}
	run, err := b.runIn(ctx)
	if err != nil {
		return err
	}
	return conclude(run, s.JSON, stdout, stderr)
}

func (s *settings) given() bool { return s.DatabaseURL != "" }

// conclude prints verdict and numbers, the JSON line last.
func conclude(run *Record, asJSON bool, stdout, stderr io.Writer) error {
	run.print(stderr)
	if asJSON {
		line, err := json.Marshal(run.Summary)
		if err != nil {
			return fmt.Errorf("print the summary: %w", err)
		}
		fmt.Fprintln(stdout, string(line))
	}
	if !run.Correct {
		return errWrong
	}
	return nil
}

// installation starts one or takes the one that was named.
func (s *settings) installation(ctx context.Context, sc Scenario, dir string, log *slog.Logger, stderr io.Writer) (*rig.Installation, error) {
	external, err := s.external()
	if err != nil {
		return nil, err
	}
	if external {
		if len(sc.Faults) > 0 || sc.Matrix != nil {
			return nil, ops.UsageError(errors.New("only what this program started can be broken: leave out the addresses, or take a scenario without faults"))
		}
		return &rig.Installation{MQTT: s.MQTTURL, Database: s.DatabaseURL, Kafka: s.KafkaBrokers, Topic: s.KafkaTopic, Redis: s.RedisURL}, nil
	}
	began := time.Now()
	in, err := rig.Start(ctx, rig.Options{Parts: sc.Parts, Hubs: sc.Load.Hubs, Dir: dir, Bin: s.Bin, Topic: s.KafkaTopic, Log: log})
	if err != nil {
		return in, fmt.Errorf("start the pipeline: %w", err)
	}
	fmt.Fprintf(stderr, "started Mosquitto, PostgreSQL, Kafka, Redis, %d ingest, %d relay in %.1f s\n",
		sc.Parts.Ingest, sc.Parts.Relay, time.Since(began).Seconds())
	return in, nil
}

func closeQuietly(ctx context.Context, in *rig.Installation, log *slog.Logger) {
	if in == nil {
		return
	}
	if err := in.Close(context.WithoutCancel(ctx)); err != nil {
		log.Warn("parts did not stop in order", "error", err)
	}
}

// workingDir is keep, made new, or a temporary directory that release removes.
func workingDir(keep string) (dir string, release func(), err error) {
	if keep == "" {
		dir, err = os.MkdirTemp("", "hubstate-load-")
		if err != nil {
			return "", nil, fmt.Errorf("make a working directory: %w", err)
		}
		// PostgreSQL runs as a user of its own and must pass through.
		return dir, func() { _ = os.RemoveAll(dir) }, os.Chmod(dir, 0o711)
	}
	dir, err = filepath.Abs(keep)
	if err != nil {
		return "", nil, fmt.Errorf("make a working directory: %w", err)
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return "", nil, ops.UsageError(fmt.Errorf("--keep %s: the directory is not empty", keep))
	}
	return dir, func() {}, errors.Join(os.MkdirAll(dir, 0o711), os.Chmod(dir, 0o711))
}

// prefixOf keeps the devices of runs on one installation apart.
func prefixOf(ownServers bool, now time.Time) string {
	if ownServers {
		return "d"
	}
	return "lt" + strconv.FormatInt(now.Unix(), 36)
}

// judge applies what the scenario provokes on purpose.
func judge(result *oracle.Result, expect Expect) bool {
	if expect.DeadLetters {
		return result.CorrectExcept(oracle.DeadLetter)
	}
	return result.Correct()
}
