package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/partitions"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func newPartitionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partitions",
		Short: "Look after the outbox's time partitions and their archives",
		Long: `The outbox is cut by time. A partition is made ahead, lives, is sealed when every row of it is published or decided,
archived (with archive_dir), and dropped when it was kept for retain_sent. Every running relay looks after this, one at a
time; these commands show it, do it once, and handle archives.`,
	}
	cmd.AddCommand(newPartitionsListCommand(), newPartitionsPlanCommand(), newPartitionsRunCommand(),
		newPartitionsVerifyCommand(), newPartitionsRestoreCommand())
	return cmd
}

// partitionsCommand is one of them: it loads the configuration and opens the maintainer's session for do.
func partitionsCommand(use, short string, args cobra.PositionalArgs, do func(s *partitionsSession) error) *cobra.Command {
	s := &partitionsSession{cfg: newConfig()}
	s.cmd = &cobra.Command{
		Use: use, Short: short, Args: args,
		RunE: func(_ *cobra.Command, args []string) error {
			s.args = args
			return s.run(do)
		},
	}
	s.cfg.flags(s.cmd, &s.cfg.Database, &s.cfg.Partitions)
	jsonFlag(s.cmd, &s.asJSON)
	return s.cmd
}

// partitionsSession is what a partitions command works with.
type partitionsSession struct {
	cmd    *cobra.Command
	cfg    *config
	args   []string
	asJSON bool
	conn   *pgx.Conn
	upkeep partitions.Config
}

func (s *partitionsSession) out() io.Writer       { return s.cmd.OutOrStdout() }
func (s *partitionsSession) ctx() context.Context { return s.cmd.Context() }

func (s *partitionsSession) run(do func(*partitionsSession) error) error {
	if err := s.cfg.load(s.cmd); err != nil {
		return err
	}
	if err := refuse(s.cfg.validatePartitions()); err != nil {
		return err
	}
	log, err := s.cfg.logger(s.cmd)
	if err != nil {
		return refuse(err)
	}
	if err := s.open(log); err != nil {
		return err
	}
	defer s.conn.Close(context.WithoutCancel(s.ctx()))
	return do(s)
}

// open connects as the maintainer: only it may look into partitions.
func (s *partitionsSession) open(log *slog.Logger) error {
	conn, err := s.cfg.connect(s.ctx(), roleMaintainer)
	if err != nil {
		return err
	}
	settings, err := s.cfg.checkSchema(s.ctx(), s.cmd, conn)
	if err != nil {
		return errors.Join(err, conn.Close(context.WithoutCancel(s.ctx())))
	}
	s.conn, s.upkeep = conn, s.cfg.maintainer(settings, prometheus.NewRegistry(), log)
	s.upkeep.Spec.Archive = s.upkeep.Store != nil
	return nil
}

func newPartitionsListCommand() *cobra.Command {
	var all bool
	cmd := partitionsCommand("list", "List the partitions with their phase, size and what they wait for", cobra.NoArgs, func(s *partitionsSession) error {
		return partitionsList(s, all)
	})
	cmd.Flags().BoolVar(&all, "all", false, "with those that were dropped")
	return cmd
}

func partitionsList(s *partitionsSession, all bool) error {
	state, now, err := partitions.Read(s.ctx(), s.conn, s.upkeep.Spec, s.upkeep.Drained, all)
	if err != nil {
		return err
	}
	if s.asJSON {
		return printJSON(s.out(), struct {
			Version    int                    `json:"version"`
			At         time.Time              `json:"at"`
			Floor      time.Time              `json:"floor,omitzero"`
			TickedAt   time.Time              `json:"last_turn_at,omitzero"`
			Runway     float64                `json:"runway_seconds"`
			Partitions []partitions.Partition `json:"partitions"`
		}{1, now, state.Floor, state.TickedAt, state.Reach(now).Seconds(), append([]partitions.Partition{}, state.Partitions...)})
	}
	t := newTable(s.out(), "PARTITION", "FROM", "TO", "PHASE", "PLACE", "ROWS", "SIZE", "NOTE")
	for i := range state.Partitions {
		p := &state.Partitions[i]
		t.row(p.Name, instant(&p.From), instant(&p.To), p.Phase, p.Place, counted(p.Rows), size(p.Bytes), or(p.Undrained, p.LastError))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(s.out(), "\ntables stand ready for %s; last turn of a maintainer: %s\n", age(state.Reach(now)), or(instant(known(state.TickedAt)), "never"))
	return nil
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func counted(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// size is a number of bytes that a person can read.
func size(n int64) string {
	value, unit := float64(n), 0
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

func newPartitionsPlanCommand() *cobra.Command {
	return partitionsCommand("plan", "Show what the next turn would do and why; changes nothing", cobra.NoArgs, func(s *partitionsSession) error {
		state, now, err := partitions.Read(s.ctx(), s.conn, s.upkeep.Spec, s.upkeep.Drained, false)
		if err != nil {
			return err
		}
		actions := partitions.Plan(state, now, s.upkeep.Spec)
		if s.asJSON {
			return printJSON(s.out(), struct {
				Version int                 `json:"version"`
				At      time.Time           `json:"at"`
				Actions []partitions.Action `json:"actions"`
			}{1, now, append([]partitions.Action{}, actions...)})
		}
		printActions(s.out(), actions)
		return nil
	})
}

func printActions(out io.Writer, actions []partitions.Action) {
	for _, a := range actions {
		fmt.Fprintln(out, a)
	}
	if len(actions) == 0 {
		fmt.Fprintln(out, "nothing to do")
	}
}

func newPartitionsRunCommand() *cobra.Command {
	var once, drop bool
	cmd := partitionsCommand("run", "Look after the partitions until stopped, or once for cron", cobra.NoArgs, func(s *partitionsSession) error {
		s.upkeep.Spec.KeepAll = s.upkeep.Spec.KeepAll || !drop
		s.upkeep.Spec.NoSettle = once // from one cron turn to the next the clock cannot be watched
		manager, err := partitions.New(s.upkeep)
		if err != nil {
			return err
		}
		if !once {
			return manager.Run(s.ctx())
		}
		report, err := manager.Once(s.ctx())
		return errors.Join(err, printReport(s, report))
	})
	cmd.Long = cmd.Short + ".\n\nWithout --drop nothing that holds rows is dropped and nothing is deleted by age; the output says what would be."
	cmd.Flags().BoolVar(&once, "once", false, "take one turn and exit; fails when another process is the maintainer")
	cmd.Flags().BoolVar(&drop, "drop", false, "also drop what was kept long enough, and delete by age")
	return cmd
}

func printReport(s *partitionsSession, r partitions.Report) error {
	if s.asJSON {
		return printJSON(s.out(), struct {
			Version int `json:"version"`
			partitions.Report
		}{1, r})
	}
	printActions(s.out(), append(r.Done, r.Waiting...))
	return nil
}

func newPartitionsVerifyCommand() *cobra.Command {
	return partitionsCommand("verify [PARTITION…]", "Read archives completely and compare them with their manifests", cobra.ArbitraryArgs, partitionsVerify)
}

// verdict is what became of one archive.
type verdict struct {
	Partition string `json:"partition"`
	OK        bool   `json:"ok"`
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"`
	Error     string `json:"error,omitempty"`
}

func partitionsVerify(s *partitionsSession) error {
	if s.upkeep.Store == nil {
		return ops.UsageError(errors.New("archive_dir: must be given"))
	}
	names, recorded, err := s.archives()
	if err != nil {
		return err
	}
	verdicts := []verdict{}
	bad := 0
	for _, name := range names {
		v := judge(s.ctx(), s.upkeep.Store, name, recorded[name])
		if !v.OK {
			bad++
		}
		verdicts = append(verdicts, v)
	}
	if err := printVerdicts(s, verdicts); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%s of %d damaged or missing", plural(int64(bad), "archive"), len(names))
	}
	return nil
}

// archives are the asked ones, or all that the ledger has, with the sha256 that the ledger has.
func (s *partitionsSession) archives() (names []string, recorded map[string]string, err error) {
	state, _, err := partitions.Read(s.ctx(), s.conn, s.upkeep.Spec, nil, true)
	if err != nil {
		return nil, nil, err
	}
	recorded = map[string]string{}
	for i := range state.Partitions {
		if p := &state.Partitions[i]; p.Phase == partitions.Archived || p.Phase == partitions.Dropped && p.Archive != "" {
			names, recorded[p.Name] = append(names, p.Name), p.SHA256
		}
	}
	if len(s.args) > 0 {
		names = s.args
	}
	return names, recorded, nil
}

func judge(ctx context.Context, store partitions.Store, name, recorded string) verdict {
	v := verdict{Partition: name}
	man, err := partitions.Verify(ctx, store, name)
	if err == nil && recorded != "" && recorded != man.SHA256 {
		err = fmt.Errorf("the ledger has recorded an archive with sha256 %s", recorded)
	}
	if man != nil {
		v.Rows, v.Bytes, v.SHA256 = man.Rows, man.Bytes, man.SHA256
	}
	if v.OK = err == nil; err != nil {
		v.Error = err.Error()
	}
	return v
}

func printVerdicts(s *partitionsSession, verdicts []verdict) error {
	if s.asJSON {
		return printJSON(s.out(), struct {
			Version  int       `json:"version"`
			Archives []verdict `json:"archives"`
		}{1, verdicts})
	}
	t := newTable(s.out(), "PARTITION", "ARCHIVE", "ROWS", "SIZE", "SHA256")
	for _, v := range verdicts {
		t.row(v.Partition, or(v.Error, "good"), v.Rows, size(v.Bytes), v.SHA256)
	}
	return t.Flush()
}

func newPartitionsRestoreCommand() *cobra.Command {
	var into string
	cmd := partitionsCommand("restore PARTITION", "Load an archive into a new table, for inspection", cobra.ExactArgs(1), func(s *partitionsSession) error {
		return partitionsRestore(s, or(into, "restored_"+s.args[0]))
	})
	cmd.Long = cmd.Short + ".\n\nThe table is attached to nothing and no relay reads it; operators and readers may. Drop it when you are done."
	cmd.Flags().StringVar(&into, "into", "", "name of the new table; default restored_PARTITION")
	return cmd
}

func partitionsRestore(s *partitionsSession, table string) error {
	if s.upkeep.Store == nil {
		return ops.UsageError(errors.New("archive_dir: must be given"))
	}
	rows, err := partitions.Restore(s.ctx(), s.conn, s.upkeep.Store, s.args[0], table, roleOperator, "hubstate_reader")
	if err != nil {
		return err
	}
	if err := s.audit("restore", s.args[0], map[string]any{"table": table, "rows": rows}); err != nil {
		return err
	}
	if s.asJSON {
		return printJSON(s.out(), map[string]any{"version": 1, "partition": s.args[0], "table": table, "rows": rows})
	}
	fmt.Fprintf(s.out(), "%s restored into table %s\n", plural(rows, "row"), table)
	return nil
}

// audit writes down what was done, under the database login.
func (s *partitionsSession) audit(action, subject string, detail map[string]any) error {
	var login string
	if err := s.conn.QueryRow(s.ctx(), selectLogin).Scan(&login); err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	if _, err := s.conn.Exec(s.ctx(), auditUpkeep, login, action, subject, "", detail); err != nil {
		return fmt.Errorf("audit %s: %w", action, err)
	}
	return nil
}
