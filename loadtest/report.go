package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/loadtest/oracle"
	"github.com/hubstate/hubstate/loadtest/rig"
)

//go:embed page.html
var pageText string

func newReportCommand() *cobra.Command {
	var output string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "report DIR",
		Short:   "Write a page about a kept run",
		Long:    "Write one self-contained HTML page about a run that was kept with --keep: verdict, numbers, and what happened over time.",
		Example: "  loadtest report /tmp/run --output run.html",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeReport(cmd.OutOrStdout(), args, output, asJSON)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; default: standard output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the record as JSON instead of a page")
	return cmd
}

func newCompareCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "compare DIR DIR",
		Short:   "Show two kept runs side by side",
		Long:    "Show two runs side by side: as a table on standard output, or with --output as a page.",
		Example: "  loadtest compare /tmp/before /tmp/after\n  loadtest compare /tmp/before /tmp/after --output compare.html",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "" {
				return writeReport(cmd.OutOrStdout(), args, output, false)
			}
			runs, err := loadRecords(args)
			if err != nil {
				return err
			}
			return printRows(cmd.OutOrStdout(), runs)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "write a page to this file")
	return cmd
}

// loadRecords reads runs by their directories, or by the path of their record.
func loadRecords(paths []string) ([]*Record, error) {
	var runs []*Record
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, recordFile)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, ops.UsageError(fmt.Errorf("read a run: %w", err))
		}
		run := &Record{}
		if err := json.Unmarshal(text, run); err != nil {
			return nil, fmt.Errorf("read a run from %s: %w", path, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func writeReport(stdout io.Writer, paths []string, output string, asJSON bool) (err error) {
	runs, err := loadRecords(paths)
	if err != nil {
		return err
	}
	w := stdout
	if output != "" {
		f, err := os.Create(output)
		if err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		w = f
	}
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", " ")
		return encoder.Encode(runs[0])
	}
	return renderPage(w, runs)
}

// page is what the template shows.
type page struct {
	Title   string
	Runs    []pageRun
	Rows    []row
	Colours [8]string // the page has this many line colours
}

type pageRun struct {
	Name, About, Where string
	Correct            bool
	Findings           []oracle.Finding
	Charts             []drawing
	Marks              []rig.Mark
}

// drawing is markup made by package chart, which escapes what it is given.
type drawing struct{ SVG, Legend template.HTML }

func renderPage(w io.Writer, runs []*Record) error {
	tmpl, err := template.New("page").Parse(pageText)
	if err != nil {
		return fmt.Errorf("render the report: %w", err)
	}
	p := page{Rows: rowsOf(runs)}
	var names []string
	for i, r := range runs {
		name := r.Summary.Scenario
		if len(runs) > 1 {
			name = fmt.Sprintf("%s (%d)", name, i+1)
		}
		names = append(names, name)
		p.Runs = append(p.Runs, r.page(name))
	}
	p.Title = "Hubstate load test: " + strings.Join(names, " and ")
	if err := tmpl.Execute(w, p); err != nil {
		return fmt.Errorf("render the report: %w", err)
	}
	return nil
}

func (r *Record) page(name string) pageRun {
	p := pageRun{Name: name, About: strings.TrimSpace(r.Scenario.About), Correct: r.Correct, Findings: r.Findings, Marks: r.Marks}
	m := r.Machine
	p.Where = fmt.Sprintf("%s · %d × %s · %s · %s · %s · seed %d", r.Started.UTC().Format("2006-01-02 15:04 UTC"), m.Cores, m.CPU, m.Memory, m.System, m.Go, r.Summary.Seed)
	for _, c := range r.charts() {
		p.Charts = append(p.Charts, drawing{template.HTML(c.SVG()), template.HTML(c.Legend())})
	}
	return p
}
