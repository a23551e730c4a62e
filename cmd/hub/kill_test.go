package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMain also serves as the hub process that a test kills.
func TestMain(m *testing.M) {
	if dir := os.Getenv("HUBSTATE_TEST_HUB_DIR"); dir != "" {
		cfg := smallConfig(dir)
		if err := newHub(cfg, os.Stdout).run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func smallConfig(dir string) *config {
	cfg := defaultConfig()
	cfg.DataDir, cfg.PageAddr, cfg.AdminAddr, cfg.Devices, cfg.Every = dir, "127.0.0.1:0", "127.0.0.1:0", 12, 100*time.Millisecond
	return cfg
}

func TestHub_KilledGoesOnWithoutLoss(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	killWhenFlowing(t, cfg.DataDir)
	h := startHub(t, cfg)
	h.awaitDevice("agv-001", 30)
	h.stop()
	for _, line := range strings.Split(h.out.String(), "\n") {
		if strings.Contains(line, ", lost ") && !strings.HasSuffix(line, ", lost 0") {
			t.Fatalf("the monitor saw a loss: %s", line)
		}
	}
}

// killWhenFlowing runs a hub in a process of its own and kills it when its screen has shown events for some seconds.
func killWhenFlowing(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0]) // killed with SIGKILL when ctx ends
	cmd.Env = append(os.Environ(), "HUBSTATE_TEST_HUB_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	flowing := 0
	for lines := bufio.NewScanner(out); flowing < 3 && lines.Scan(); {
		if strings.Contains(lines.Text(), "→ screen ") && !strings.Contains(lines.Text(), "→ screen 0,") {
			flowing++
		}
	}
	if err := cmd.Process.Kill(); err != nil || flowing < 3 {
		t.Fatalf("the hub ended before it was killed (%v), %d lines of flow", err, flowing)
	}
	_ = cmd.Wait()
}
