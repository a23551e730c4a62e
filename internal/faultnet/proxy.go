// Package faultnet puts faults on a TCP link: a small proxy on loopback that can cut, mute, slow and reset what passes.
//
// Unlike a fault injected into a client, the two ends are real and see what they would see on a bad network: a silent
// peer, a reset, half a message. CutAfter cuts at an exact byte, which finds the torn frames that chance does not.
//
// A Kafka client follows the addresses that brokers advertise and so leaves a proxy: give it one proxy per broker and a
// dialer that maps each address.
package faultnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one way through the proxy.
type Direction int

// The directions: Up is from the client to the target, Down is back.
const (
	Up Direction = iota
	Down
)

// String names the direction.
func (d Direction) String() string {
	if d == Up {
		return "up"
	}
	return "down"
}

// Proxy forwards connections to one target. All methods may be called at any time from any goroutine; faults act on the
// connections that exist and on those that come, until Heal.
type Proxy struct {
	target   string
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]struct{}
	faults faults
	change chan struct{} // closed and replaced whenever faults change, so that waiting pumps look again
	closed bool
}

// faults is what the link suffers from; the zero value is a healthy link.
type faults struct {
	refuse bool
	muted  [2]bool
	delay  time.Duration
	budget [2]*int64 // bytes that may still pass before the cut; nil: no limit
}

// New starts a proxy to target (host:port) on a free loopback port. It ends, with all its connections, when ctx does.
func New(ctx context.Context, target string) (*Proxy, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fault proxy to %s: %w", target, err)
	}
	p := &Proxy{target: target, listener: listener, links: map[*link]struct{}{}, change: make(chan struct{})}
	p.done.Go(p.accept)
	context.AfterFunc(ctx, func() { _ = p.Close() })
	return p, nil
}

// Addr is the address clients connect to, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and all its connections, and waits for its goroutines.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.drop(false)
	p.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Cut closes all connections in order (FIN), like a server that ends, and resets new ones right after they connect,
// until Heal. (The port stays ours: were the listener closed, somebody else could take it.)
func (p *Proxy) Cut() {
	p.set(func(f *faults) { f.refuse = true })
	p.drop(false)
}

// Reset breaks all connections with a TCP reset (SO_LINGER 0). New ones are let through: a fault of a moment.
func (p *Proxy) Reset() { p.drop(true) }

// Mute swallows nothing and delivers nothing in one direction: bytes are held back until Heal, as behind a dead link
// whose ends have not noticed. Connections stay open, new ones are accepted.
func (p *Proxy) Mute(d Direction) { p.set(func(f *faults) { f.muted[d] = true }) }

// Slow delays every chunk in both directions by delay. Order is kept.
func (p *Proxy) Slow(delay time.Duration) { p.set(func(f *faults) { f.delay = delay }) }

// CutAfter lets exactly n more bytes pass in one direction, over all connections together, and then acts as Cut.
func (p *Proxy) CutAfter(d Direction, n int64) { p.set(func(f *faults) { f.budget[d] = &n }) }

// Heal takes all faults off. Held-back bytes go on their way; connections that were cut stay cut.
func (p *Proxy) Heal() { p.set(func(f *faults) { *f = faults{} }) }

// Connections is the number of open connections through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

func (p *Proxy) set(edit func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit(&p.faults)
	close(p.change)
	p.change = make(chan struct{})
}

func (p *Proxy) drop(reset bool) {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.end(reset)
	}
}

// accept lives until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if p.refuses() {
		abort(client)
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 10*time.Second) //nolint:noctx // Close waits no longer than this
	if err != nil {
		abort(client)
		return
	}
	l := &link{client: client, server: server, ended: make(chan struct{})}
	if !p.add(l) {
		l.end(true)
		return
	}
	defer p.remove(l)
	l.pump(p)
}

func (p *Proxy) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.refuse || p.closed
}

// add registers a link unless the proxy was cut or closed while it was being dialled: the cut would have missed it.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.refuse || p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
