package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	ExitOK     = 0 // done, or stopped by SIGINT or SIGTERM as asked
	ExitFailed = 1 // worth trying again
	ExitUsage  = 2 // wrong command line or configuration: trying again changes nothing
)

// Main runs root with a context that SIGINT and SIGTERM cancel, then exits the process. A second signal kills it at
// once. An error is printed once, to stderr. Main does not return.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the default handling is back: the next signal ends the process
	code := run(ctx, root, os.Stderr)
	stop()
	os.Exit(code)
}

// UsageError marks err as the caller's mistake on the command line: exit code 2.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func run(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError(err) })
	markArgErrors(root)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(ctx, err)
	if code == ExitOK {
		return code
	}
	fmt.Fprintf(stderr, "%s: %s\n", cmd.CommandPath(), Mask(err.Error()))
	var refused *ConfigError
	if code == ExitUsage && !errors.As(err, &refused) {
		fmt.Fprintf(stderr, "try: %s --help\n", cmd.CommandPath())
	}
	return code
}

func markArgErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error { return UsageError(check(c, args)) }
	}
	for _, child := range cmd.Commands() {
		markArgErrors(child)
	}
}

func exitCode(ctx context.Context, err error) int {
	var usage *usageError
	var refused *ConfigError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage), errors.As(err, &refused):
		return ExitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return ExitOK
	case strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "required flag"):
		return ExitUsage // cobra has no type for these
	}
	return ExitFailed
}
