package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

func newScenariosCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "scenarios",
		Short: "List the scenarios that ship with it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			for _, name := range scenarioNames() {
				s, err := loadScenario(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "%s\t%s\t%s\n", name, s.Takes, strings.TrimSpace(s.About))
			}
			return w.Flush()
		},
	}
}
