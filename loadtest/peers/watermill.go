package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// watermillProgram is what `make bench/peers` builds from the directory watermill, beside this program.
const watermillProgram = "peer-watermill"

func findWatermill(dir string) (string, error) {
	if dir == "" {
		own, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find watermill: %w", err)
		}
		dir = filepath.Dir(own)
	}
	path, err := filepath.Abs(filepath.Join(dir, watermillProgram))
	if err != nil {
		return "", fmt.Errorf("find watermill: %w", err)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("find watermill: %w; run `make bench/peers`, or leave it out with --only", err)
	}
	return path, nil
}

// watermillArgs are those of its program.
func watermillArgs(database string, brokers []string, topic string) []string {
	return []string{"-database", database, "-brokers", strings.Join(brokers, ","), "-topic", topic}
}

// initWatermill lets the library make its tables.
func initWatermill(ctx context.Context, path, database string) error {
	if out, err := exec.CommandContext(ctx, path, "-database", database, "-init").CombinedOutput(); err != nil {
		return fmt.Errorf("make watermill's tables: %w: %s", err, out)
	}
	return nil
}
