package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MosquittoOptions says how StartMosquitto runs.
type MosquittoOptions struct {
	// Dir holds the configuration, the persistence file and the log; made when missing, kept at Stop. Required.
	Dir string
	// Port on 127.0.0.1; 0 is a free one.
	Port int
	// ConfigFile holds the settings; empty is deploy/mosquitto/hubstate.conf as compiled in.
	ConfigFile string
}

// Mosquitto is a running Mosquitto broker without authentication, on loopback. Stop writes its sessions and queues to
// disk; Kill loses what came since its last snapshot, as the real broker does.
type Mosquitto struct {
	*Process
	port int
	lock *dirLock
}

// StartMosquitto starts the broker of this machine and returns when it accepts connections.
func StartMosquitto(ctx context.Context, opts MosquittoOptions) (*Mosquitto, error) {
	path, err := findProgram("mosquitto", "mosquitto")
	if err != nil {
		return nil, err
	}
	dir, lock, err := claimDir(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("start Mosquitto: %w", err)
	}
	proc, port, err := startOnPort(ctx, opts.Port, func(port int) (program, error) {
		args, err := writeMosquittoConfig(dir, port, opts.ConfigFile)
		return program{
			name: "Mosquitto", path: path, args: args, logPath: filepath.Join(dir, "mosquitto.log"),
			stop: syscall.SIGTERM, ready: dialReady(port),
		}, err
	})
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return &Mosquitto{Process: proc, port: port, lock: lock}, nil
}

// URL is the broker's address, mqtt://127.0.0.1:port.
func (m *Mosquitto) URL() string { return "mqtt://" + loopback(m.port) }

// Stop lets the broker save its sessions and queues.
func (m *Mosquitto) Stop(ctx context.Context) error {
	return errors.Join(m.Process.Stop(ctx), m.lock.release())
}

// writeMosquittoConfig writes what belongs to this machine into mosquitto.conf and the settings, untouched, into conf.d.
func writeMosquittoConfig(dir string, port int, configFile string) ([]string, error) {
	settings, err := readConfig(configFile, "mosquitto/hubstate.conf")
	if err != nil {
		return nil, err
	}
	confD := filepath.Join(dir, "conf.d")
	lines := []string{
		fmt.Sprintf("listener %d 127.0.0.1", port),
		"allow_anonymous true",
		"persistence_location " + dir + "/",
		"log_dest stdout",
		"include_dir " + confD,
	}
	if os.Geteuid() == 0 {
		// Otherwise Mosquitto drops to a user that cannot write to our directory.
		lines = append(lines, "user root")
	}
	main := filepath.Join(dir, "mosquitto.conf")
	err = errors.Join(
		os.MkdirAll(confD, 0o700),
		os.WriteFile(filepath.Join(confD, "hubstate.conf"), settings, 0o600),
		os.WriteFile(main, []byte(strings.Join(lines, "\n")+"\n"), 0o600),
	)
	return []string{"-c", main}, err
}

// claimDir makes dir and locks it.
func claimDir(dir string) (string, *dirLock, error) {
	if dir == "" {
		return "", nil, errors.New("Dir is required")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	lock, err := lockDir(dir)
	return dir, lock, err
}

// startOnPort starts a program on port. A port that was ours to choose (0) is chosen again when the start fails:
// somebody else may have been faster.
func startOnPort(ctx context.Context, port int, prog func(port int) (program, error)) (*Process, int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var errs []error
	for range 3 {
		chosen, err := portOr(port)
		if err != nil {
			return nil, 0, err
		}
		p, err := prog(chosen)
		if err != nil {
			return nil, 0, fmt.Errorf("start %s: %w", p.name, err)
		}
		proc, err := startProcess(ctx, p)
		if err == nil {
			return proc, chosen, nil
		}
		errs = append(errs, err)
		if port != 0 || ctx.Err() != nil {
			break
		}
	}
	return nil, 0, errors.Join(errs...)
}

func dialReady(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", loopback(port))
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// findProgram looks in PATH and in the system directories an ordinary user's PATH lacks.
func findProgram(name, debianPackage string) (string, error) {
	for _, candidate := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name, "/opt/homebrew/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not on this machine: run `make setup`, or `apt-get install %s`", name, debianPackage)
}
