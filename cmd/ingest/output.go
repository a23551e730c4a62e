package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/hubstate/hubstate/internal/ops"
)

func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON, a contract for programs")
}

// printJSON writes one value, indented, with a last line end.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	return nil
}

// printConfig writes the configuration as ops shows it: secrets masked, file syntax or JSON of the same keys.
func printConfig(cmd *cobra.Command, cfg config, asJSON bool) error {
	if !asJSON {
		return ops.WriteConfig(cmd.OutOrStdout(), &cfg)
	}
	var text bytes.Buffer
	if err := ops.WriteConfig(&text, &cfg); err != nil {
		return err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text.Bytes(), &values); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return printJSON(cmd.OutOrStdout(), values)
}
