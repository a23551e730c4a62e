package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/rig"
)

// Cell is one fault on one component.
type Cell struct {
	Component       string  `json:"component"`
	Fault           string  `json:"fault"`
	Lost            int64   `json:"lost"`
	LostBeforeUs    int64   `json:"lost_before_us"`
	Reordered       int64   `json:"reordered"`
	TopicDuplicates int64   `json:"topic_duplicates"`
	DoubleEffects   int64   `json:"double_effects"`
	RecoverySeconds float64 `json:"recovery_seconds"` // from mended until nothing was a second late any more

	correct bool
	note    string // what else is to be said
}

// ChaosSummary is the line that --json ends with for a matrix.
type ChaosSummary struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	Cells    []Cell `json:"cells"`
}

// matrix walks the cells on one installation. Each cell has a fleet and a consumer of its own.
type matrix struct {
	base bench // of every cell
	out  io.Writer
}

func (m *matrix) run(ctx context.Context, only []string) (ChaosSummary, bool, error) {
	sc := m.base.scenario
	sum := ChaosSummary{Scenario: sc.Name, Seed: m.base.seed}
	correct := true
	for _, component := range sc.Matrix.Components {
		for _, fault := range sc.Matrix.Faults {
			if len(only) > 0 && !slices.Contains(only, component+"/"+fault) && !slices.Contains(only, component) {
				continue
			}
			cell := m.cell(ctx, len(sum.Cells), component, fault)
			if ctx.Err() != nil {
				return sum, false, context.Cause(ctx)
			}
			correct = correct && cell.correct
			sum.Cells = append(sum.Cells, cell)
			fmt.Fprintf(m.out, "\n%s %s: lost %d, reordered %d, recovered in %.1f s %s\n", component, fault, cell.Lost, cell.Reordered, cell.RecoverySeconds, cell.note)
		}
	}
	return sum, correct, nil
}

// cell runs one cell; what goes wrong with it is its result, and the walk goes on.
func (m *matrix) cell(ctx context.Context, n int, component, fault string) Cell {
	cell := Cell{Component: component, Fault: fault}
	b := m.base
	mx := b.scenario.Matrix
	b.seed += uint64(n)
	b.scenario.Name = component + "-" + fault
	b.scenario.Load.Prefix = fmt.Sprintf("c%02d", n)
	b.scenario.Faults = []rig.Fault{{At: mx.At, Do: fault, On: []string{victim(component, fault)}, For: mx.For}}
	b.dir = filepath.Join(m.base.dir, b.scenario.Name)
	record, err := b.runIn(ctx)
	if err != nil {
		cell.note = err.Error()
		return cell
	}
	cell.fill(record, mx.Recovery)
	if !cell.correct {
		record.print(m.out)
	}
	return cell
}

// victim hangs one relay of several, so that another takes over and the sleeper wakes up to find it; everything else
// concerns all members.
func victim(component, fault string) string {
	if component == rig.Relay && fault == rig.DoHang {
		return rig.Relay + "/1"
	}
	return component
}

func (c *Cell) fill(r *Record, limit time.Duration) {
	c.Lost, c.Reordered, c.TopicDuplicates = r.Summary.Lost, r.Summary.Reordered, r.Summary.TopicDuplicates
	c.LostBeforeUs = r.count(oracle.LostBeforeUs)
	c.DoubleEffects = r.count(oracle.DoubleEffect)
	c.RecoverySeconds = float64(r.Recovery.Round(100*time.Millisecond)) / float64(time.Second)
	c.correct = r.Correct
	if r.Recovery > limit {
		c.correct, c.note = false, fmt.Sprintf("(slower than %s)", limit)
	}
	for name, n := range r.Exits {
		c.note += fmt.Sprintf(" (%s ended %d times by itself)", name, n)
	}
}

// print writes the table.
func (s *ChaosSummary) print(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "component\tfault\tlost\tlost before us\treordered\ttopic duplicates\tdouble effects\trecovery s\t\t")
	for _, c := range s.Cells {
		verdict := "correct"
		if !c.correct {
			verdict = "WRONG"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.1f\t%s\t%s\n",
			c.Component, c.Fault, c.Lost, c.LostBeforeUs, c.Reordered, c.TopicDuplicates, c.DoubleEffects, c.RecoverySeconds, verdict, c.note)
	}
	_ = w.Flush()
}

// runMatrix walks the matrix and prints the table, the JSON line last.
func runMatrix(ctx context.Context, base bench, s settings, stdout, stderr io.Writer) error {
	m := &matrix{base: base, out: stderr}
	sum, correct, err := m.run(ctx, s.Cells)
	if err != nil {
		return err
	}
	if len(sum.Cells) == 0 {
		return errors.New("no cell of the matrix was chosen")
	}
	sum.print(stderr)
	if s.JSON {
		line, err := json.Marshal(sum)
		if err != nil {
			return fmt.Errorf("print the summary: %w", err)
		}
		fmt.Fprintln(stdout, string(line))
	}
	if !correct {
		return errWrong
	}
	return nil
}
