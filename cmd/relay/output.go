package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// jsonFlag adds --json: docs/cli-json.md is the contract of what it prints.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON as docs/cli-json.md describes it")
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// table prints aligned columns; close it with Flush.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, header ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	t.row(toAny(header)...)
	return t
}

func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		if texts[i] = fmt.Sprint(c); texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(t, strings.Join(texts, "\t"))
}

func toAny(texts []string) []any {
	all := make([]any, len(texts))
	for i, s := range texts {
		all[i] = s
	}
	return all
}

// age is a duration a person can read: two units at most.
func age(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.Itoa(int(d.Milliseconds())) + "ms"
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// instant is a time in UTC; empty for none.
func instant(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// text is the string behind p; empty for none.
func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// plural is "1 bucket", "2 buckets".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}
