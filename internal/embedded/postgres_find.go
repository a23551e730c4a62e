package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// minPostgresVersion is the oldest major version the schema is written for.
const minPostgresVersion = 15

var postgresVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// postgresInstall is a directory with initdb and postgres in it.
type postgresInstall struct {
	bin   string
	major int
}

// findPostgres returns the newest installation, or the newest of the wanted major version (0: any from 15 up).
// HUBSTATE_POSTGRES_BIN names a directory and is then the only one looked at.
func findPostgres(ctx context.Context, major int) (postgresInstall, error) {
	var found []postgresInstall
	for _, bin := range postgresDirs(ctx) {
		if install, ok := inspectPostgres(ctx, bin); ok && (major == 0 || install.major == major) {
			found = append(found, install)
		}
	}
	if len(found) == 0 {
		return postgresInstall{}, postgresMissing(major)
	}
	return slices.MaxFunc(found, func(a, b postgresInstall) int { return a.major - b.major }), nil
}

func postgresMissing(major int) error {
	what := fmt.Sprintf("PostgreSQL %d or newer", minPostgresVersion)
	if major != 0 {
		what = fmt.Sprintf("PostgreSQL %d", major)
	}
	return fmt.Errorf("%s is not on this machine: run `make setup`, or `apt-get install postgresql`, or set HUBSTATE_POSTGRES_BIN", what)
}

func postgresDirs(ctx context.Context) []string {
	if dir := os.Getenv("HUBSTATE_POSTGRES_BIN"); dir != "" {
		return []string{dir}
	}
	var dirs []string
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, string(out[:max(0, len(out)-1)]))
	}
	patterns := []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin"}
	if cache, err := CacheDir(); err == nil {
		patterns = append(patterns, filepath.Join(cache, "postgresql", "*", "bin"))
	}
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		dirs = append(dirs, matches...)
	}
	return dirs
}

func inspectPostgres(ctx context.Context, bin string) (postgresInstall, bool) {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return postgresInstall{}, false
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return postgresInstall{}, false
	}
	match := postgresVersion.FindSubmatch(out)
	if match == nil {
		return postgresInstall{}, false
	}
	major, err := strconv.Atoi(string(match[1]))
	return postgresInstall{bin: bin, major: major}, err == nil && major >= minPostgresVersion
}
