package faultnet

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// link is one client connection and its counterpart to the target.
type link struct {
	client, server net.Conn
	once           sync.Once
	ended          chan struct{}
}

// pump copies both ways until both are done.
func (l *link) pump(p *Proxy) {
	var both sync.WaitGroup
	both.Go(func() { l.copy(p, Up, l.server, l.client) })
	both.Go(func() { l.copy(p, Down, l.client, l.server) })
	both.Wait()
	l.end(false)
}

// copy moves chunks from one end to the other. An orderly end is passed on as one (half close), so that protocols that
// shut down one direction first work as without a proxy.
func (l *link) copy(p *Proxy, d Direction, to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.forward(p, d, to, buf[:n]) {
			l.end(false)
			return
		}
		if errors.Is(err, io.EOF) {
			closeWrite(to)
			return
		}
		if err != nil {
			l.end(true)
			return
		}
	}
}

// forward writes one chunk as the faults of the moment allow, and reports whether the link goes on.
func (l *link) forward(p *Proxy, d Direction, to net.Conn, chunk []byte) bool {
	allowed, cut, open := p.admit(l, d, len(chunk))
	if !open {
		return false
	}
	if _, err := to.Write(chunk[:allowed]); err != nil {
		return false
	}
	if cut {
		p.Cut()
	}
	return !cut
}

// admit waits while the direction is muted or slowed, and says how many bytes may pass, whether the link is to be cut
// after them, and whether it is still open.
func (p *Proxy) admit(l *link, d Direction, n int) (allowed int, cut, open bool) {
	delayed := false
	for {
		p.mu.Lock()
		f, change := p.faults, p.change
		if !f.muted[d] && (f.delay == 0 || delayed) {
			allowed, cut = p.spendLocked(d, n)
			p.mu.Unlock()
			return allowed, cut, true
		}
		p.mu.Unlock()
		var timer <-chan time.Time
		if !f.muted[d] {
			timer = time.After(f.delay)
		}
		select {
		case <-timer:
			delayed = true
		case <-change:
		case <-l.ended:
			return 0, false, false
		}
	}
}

// spendLocked takes n bytes from the direction's budget, or what is left of it.
func (p *Proxy) spendLocked(d Direction, n int) (allowed int, cut bool) {
	budget := p.faults.budget[d]
	if budget == nil {
		return n, false
	}
	allowed = int(min(int64(n), *budget))
	*budget -= int64(allowed)
	return allowed, *budget == 0
}

// end closes both sides, with a reset when the break must be hard.
func (l *link) end(reset bool) {
	l.once.Do(func() {
		close(l.ended)
		for _, conn := range []net.Conn{l.client, l.server} {
			if reset {
				abort(conn)
			} else {
				_ = conn.Close()
			}
		}
	})
}

// abort closes a connection with a reset: SO_LINGER 0 throws away what was not sent yet.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

func closeWrite(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}
