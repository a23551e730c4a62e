package ops

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLogger writes structured lines to w. level is debug, info, warn or error; format is text or json.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, fmt.Errorf("log_level = %q: must be debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: min}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("log_format = %q: must be text or json", format)
}
