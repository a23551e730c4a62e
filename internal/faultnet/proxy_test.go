package faultnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/faultnet"
)

const quiet = 150 * time.Millisecond // long against a loopback round trip of 0.1 ms

func TestProxy_CarriesBytesBothWaysUnchanged(t *testing.T) {
	t.Parallel()
	_, conn := setup(t)
	sent := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("a megabyte did not come back unchanged (%v)", err)
	}
}

func TestProxy_CutEndsConnectionsAndRefusesNewOnesUntilHeal(t *testing.T) {
	t.Parallel()
	proxy, conn := setup(t)
	echo(t, conn, "before")
	proxy.Cut()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("read on a cut connection: %v, want EOF", err)
	}
	refused := dial(t, proxy)
	if _, err := refused.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a connection while cut lives on (%v)", err)
	}
	proxy.Heal()
	echo(t, dial(t, proxy), "after")
}

func TestProxy_ResetIsSeenAsResetAndIsOver(t *testing.T) {
	t.Parallel()
	proxy, conn := setup(t)
	echo(t, conn, "before")
	proxy.Reset()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read after a reset: %v, want ECONNRESET", err)
	}
	echo(t, dial(t, proxy), "after")
}

func TestProxy_MuteHoldsOneDirectionBackAndHealDeliversIt(t *testing.T) {
	t.Parallel()
	for _, direction := range []faultnet.Direction{faultnet.Up, faultnet.Down} {
		t.Run(direction.String(), func(t *testing.T) {
			t.Parallel()
			proxy, conn := setup(t)
			echo(t, conn, "before")
			proxy.Mute(direction)
			write(t, conn, "held")
			deadline(t, conn, quiet)
			if n, err := conn.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("muted link: %d bytes, %v", n, err)
			}
			proxy.Heal()
			deadline(t, conn, 10*time.Second)
			expect(t, conn, "held")
		})
	}
}

func TestProxy_SlowDelaysEachDirection(t *testing.T) {
	t.Parallel()
	proxy, conn := setup(t)
	proxy.Slow(50 * time.Millisecond)
	start := time.Now()
	echo(t, conn, "late")
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Fatalf("there and back took %v, want at least twice 50ms", took)
	}
}

func TestProxy_CutAfterLetsExactlyThatManyBytesPass(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 5, 40_000} {
		proxy, conn := setup(t)
		proxy.CutAfter(faultnet.Down, n)
		go func() { _, _ = io.Copy(conn, strings.NewReader(strings.Repeat("x", 100_000))) }()
		got, err := io.Copy(io.Discard, conn)
		if got != n {
			t.Fatalf("%d bytes passed (%v), want %d", got, err, n)
		}
	}
}

func TestProxy_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	proxy, err := faultnet.New(ctx, echoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, proxy)
	echo(t, conn, "before")
	cancel()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read after the end: %v", err)
	}
	if err := proxy.Close(); err != nil {
		t.Fatal(err)
	}
	if n := proxy.Connections(); n != 0 {
		t.Fatalf("%d connections left", n)
	}
}

func setup(t *testing.T) (*faultnet.Proxy, net.Conn) {
	t.Helper()
	proxy, err := faultnet.New(t.Context(), echoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	return proxy, dial(t, proxy)
}

func echoServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return listener.Addr().String()
}

func dial(t *testing.T, proxy *faultnet.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	deadline(t, conn, 10*time.Second)
	return conn
}

func deadline(t *testing.T, conn net.Conn, d time.Duration) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

func echo(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	write(t, conn, text)
	expect(t, conn, text)
}

func write(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}
