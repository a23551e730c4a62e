package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hubstate/hubstate/deploy"
	"github.com/jackc/pgx/v5"
)

const (
	postgresUser     = "hubstate"
	postgresDatabase = "hubstate"
	postgresConf     = "hubstate.conf"
)

// PostgresOptions says how StartPostgres runs.
type PostgresOptions struct {
	// DataDir holds the database cluster, its password and its log; made when missing, kept at Stop. Required.
	// A root caller's directory is handed to user postgres, so every parent must let that user pass.
	DataDir string
	// Version is the major version wanted; 0 is the newest found.
	Version int
	// Port on 127.0.0.1; 0 is a free one.
	Port int
	// ConfigFile holds the settings; empty is deploy/postgres/hubstate.conf as compiled in.
	ConfigFile string
	// Settings go over the file, as `postgres -c name=value`.
	Settings map[string]string
}

// Postgres is a running PostgreSQL server. Its data survives Stop, Kill and the end of this process.
type Postgres struct {
	*Process
	install  postgresInstall
	dir      string
	port     int
	password string
	lock     *dirLock
}

// StartPostgres starts PostgreSQL from the binaries of this machine, with a cluster made on first use, and returns when
// it takes queries. fsync stays on: what the server acknowledged survives a crash, as in an installation.
func StartPostgres(ctx context.Context, opts PostgresOptions) (*Postgres, error) {
	pg, err := preparePostgres(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := pg.run(ctx, opts); err != nil {
		return nil, errors.Join(err, pg.lock.release())
	}
	return pg, nil
}

// URL is the superuser's URL of database hubstate, password included.
func (pg *Postgres) URL() string { return pg.databaseURL(postgresDatabase) }

// Version is the server's major version.
func (pg *Postgres) Version() int { return pg.install.major }

// Stop is a fast shutdown: open transactions are rolled back, everything committed is on disk.
func (pg *Postgres) Stop(ctx context.Context) error {
	return errors.Join(pg.Process.Stop(ctx), pg.lock.release())
}

func (pg *Postgres) databaseURL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(postgresUser, pg.password), Host: loopback(pg.port), Path: database, RawQuery: "sslmode=disable"}
	return u.String()
}

func (pg *Postgres) cluster() string { return filepath.Join(pg.dir, "cluster") }

// preparePostgres does all that can be done before the server runs: binaries, directory, lock, cluster, settings.
func preparePostgres(ctx context.Context, opts PostgresOptions) (*Postgres, error) {
	if opts.DataDir == "" {
		return nil, errors.New("DataDir is required")
	}
	dir, err := filepath.Abs(opts.DataDir)
	if err != nil {
		return nil, err
	}
	install, err := findPostgres(ctx, opts.Version)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	pg := &Postgres{install: install, dir: dir, lock: lock}
	if err := pg.prepare(ctx, opts); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return pg, nil
}

func (pg *Postgres) prepare(ctx context.Context, opts PostgresOptions) error {
	own, err := serverOwner()
	if err != nil {
		return err
	}
	if own != nil {
		if err := errors.Join(own.canEnter(pg.dir), own.canEnter(pg.install.bin)); err != nil {
			return err
		}
	}
	if err := stopLeftover(pg.cluster()); err != nil {
		return err
	}
	if err := pg.loadPassword(); err != nil {
		return err
	}
	if err := pg.initCluster(ctx, own); err != nil {
		return err
	}
	if err := pg.writeSettings(opts.ConfigFile); err != nil {
		return err
	}
	if own == nil {
		return nil
	}
	return own.take(pg.dir)
}

// loadPassword reads the superuser's password or makes one. Loopback is shared by all users of a machine, and a
// superuser of PostgreSQL runs programs: trust is not good enough.
func (pg *Postgres) loadPassword() error {
	path := filepath.Join(pg.dir, "password")
	text, err := os.ReadFile(path)
	if err == nil {
		pg.password = strings.TrimSpace(string(text))
		return nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	pg.password = rand.Text()
	return os.WriteFile(path, []byte(pg.password+"\n"), 0o600)
}

// initCluster makes the cluster in a sibling directory and renames it, so that a half-made one is never used.
func (pg *Postgres) initCluster(ctx context.Context, own *owner) error {
	if err := pg.checkClusterVersion(); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	fresh := pg.cluster() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if own != nil {
		if err := own.take(pg.dir); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(pg.install.bin, "initdb"), "-D", fresh, "-U", postgresUser,
		"--auth=scram-sha-256", "--pwfile="+filepath.Join(pg.dir, "password"), "-E", "UTF8", "--locale=C.UTF-8",
		"--data-checksums", "--no-sync", "--no-instructions")
	cmd.Dir = "/"
	if own != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: own.credential()}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := syncFilesystem(pg.dir); err != nil {
		return fmt.Errorf("sync the new cluster: %w", err)
	}
	return os.Rename(fresh, pg.cluster())
}

func (pg *Postgres) checkClusterVersion() error {
	text, err := os.ReadFile(filepath.Join(pg.cluster(), "PG_VERSION"))
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(text)); got != strconv.Itoa(pg.install.major) {
		return fmt.Errorf("the data in %s is of PostgreSQL %s and the server found is %d: install PostgreSQL %s, or move the data away", pg.dir, got, pg.install.major, got)
	}
	return nil
}

// writeSettings copies the settings file into the cluster and has it included. A copy, because the server's user may
// not be able to read the original.
func (pg *Postgres) writeSettings(configFile string) error {
	text, err := readConfig(configFile, "postgres/"+postgresConf)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(pg.cluster(), postgresConf), text, 0o600); err != nil {
		return err
	}
	main := filepath.Join(pg.cluster(), "postgresql.conf")
	include := "include '" + postgresConf + "'\n"
	present, err := os.ReadFile(main)
	if err != nil || strings.HasSuffix(string(present), include) {
		return err
	}
	return os.WriteFile(main, append(present, include...), 0o600)
}

// readConfig reads a settings file, or the one of deploy/ that was compiled in.
func readConfig(path, standard string) ([]byte, error) {
	if path == "" {
		return deploy.Files.ReadFile(standard)
	}
	return os.ReadFile(path)
}

// run starts the server; a port that was ours to choose is chosen again when somebody else was faster.
func (pg *Postgres) run(ctx context.Context, opts PostgresOptions) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for range 3 {
		port, err := portOr(opts.Port)
		if err != nil {
			return err
		}
		pg.port = port
		prog, err := pg.program(opts.Settings)
		if err != nil {
			return err
		}
		pg.Process, err = startProcess(ctx, prog)
		if err == nil {
			return pg.createDatabase(ctx)
		}
		errs = append(errs, err)
		if opts.Port != 0 || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

func (pg *Postgres) program(settings map[string]string) (program, error) {
	own, err := serverOwner()
	if err != nil {
		return program{}, err
	}
	// No Unix socket: its path may not be longer than 107 bytes, and nothing here uses it.
	args := []string{"-D", pg.cluster(), "-p", strconv.Itoa(pg.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	for _, name := range sortedKeys(settings) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return program{
		name: "PostgreSQL", path: filepath.Join(pg.install.bin, "postgres"), args: args,
		logPath: filepath.Join(pg.dir, "postgres.log"), owner: own, stop: syscall.SIGINT, ready: pg.ping,
	}, nil
}

func (pg *Postgres) ping(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, pg.databaseURL("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (pg *Postgres) createDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, pg.databaseURL("postgres"))
	if err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	defer conn.Close(ctx)
	var exists bool
	if err := conn.QueryRow(ctx, sqlDatabaseExists, postgresDatabase).Scan(&exists); err != nil || exists {
		return err
	}
	_, err = conn.Exec(ctx, sqlCreateDatabase)
	return err
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
