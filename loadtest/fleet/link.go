package fleet

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hubstate/hubstate/loadtest/ledger"
)

var errLinkLost = errors.New("connection lost")

// keepAlive is what CONNECT announces; an idle link pings after a third of it.
const keepAlive = 60 * time.Second

// pace is the longest time that a report waits for its neighbours so that they leave in one write.
const pace = time.Millisecond

// link is one MQTT connection and the devices behind it. Everything but the window and conn belongs to its run goroutine.
type link struct {
	fleet   *Fleet
	id      string
	rng     *rand.Rand
	devices []device
	turn    int // whose report is next
	plan    schedule
	offline bool
	window  *window

	pending *outgoing // made and in the ledger, but not yet sent: the window was full
	out     *bufio.Writer
	scratch []byte
	topic   []byte
	wrote   time.Time

	mu   sync.Mutex
	conn net.Conn // guarded by mu: cut closes it from elsewhere
}

// outgoing is a report that waits for room in the window.
type outgoing struct {
	stream int
	number uint32
}

// run keeps the link connected until everything that is due was sent and acknowledged.
func (l *link) run(ctx context.Context) error {
	return l.keep(ctx, l.pump)
}

// runClosing does the same for one closing report of each device.
func (l *link) runClosing(ctx context.Context) error {
	next := 0
	return l.keep(ctx, func(ctx context.Context, lost <-chan struct{}) error { return l.pumpClosing(ctx, lost, &next) })
}

// keep connects, sends again what was not acknowledged and pumps; from the start when the link breaks.
func (l *link) keep(ctx context.Context, pump func(context.Context, <-chan struct{}) error) error {
	wait := time.Duration(0)
	for {
		began := time.Now()
		err := l.session(ctx, pump)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s: %d reports unacknowledged: %w", l.id, len(l.window.waiting(nil)), context.Cause(ctx))
		}
		l.fleet.Broken.Add(1)
		if wait = min(2*wait+50*time.Millisecond, time.Second); time.Since(began) > 5*time.Second {
			wait = 0
		}
		select {
		case <-time.After(time.Duration(float64(wait) * (0.5 + rand.Float64()))):
		case <-ctx.Done():
		}
	}
}

func (l *link) session(ctx context.Context, pump func(context.Context, <-chan struct{}) error) error {
	conn, in, err := l.connect(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	lost := make(chan struct{})
	// Ends when the connection does; session waits for it below.
	go func() { defer close(lost); l.readAcks(in) }()
	err = l.resend()
	if err == nil {
		err = pump(ctx, lost)
	}
	if err == nil {
		_, _ = conn.Write([]byte{packetDisconect, 0})
	}
	conn.Close()
	<-lost
	return err
}

func (l *link) connect(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", l.fleet.addr)
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReaderSize(conn, l.bufferSize(1<<14))
	if err := l.handshake(conn, in); err != nil {
		conn.Close()
		return nil, nil, err
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	l.out = bufio.NewWriterSize(conn, l.bufferSize(1<<16))
	return conn, in, nil
}

// bufferSize keeps twenty thousand connections with one device each in little memory.
func (l *link) bufferSize(many int) int {
	if len(l.devices) < 8 {
		return 512
	}
	return many
}

func (l *link) handshake(conn net.Conn, in *bufio.Reader) error {
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := conn.Write(appendConnect(nil, l.id, uint16(keepAlive/time.Second), l.fleet.auth)); err != nil {
		return err
	}
	kind, body, err := readPacket(in, make([]byte, 8))
	if err != nil {
		return err
	}
	if kind != packetConnack {
		return errMalformed
	}
	_ = conn.SetDeadline(time.Time{})
	return connackError(body)
}

// cut breaks the connection from outside.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
	}
}

// readAcks takes PUBACKs until the connection ends. A broker that says nothing for long is given up.
func (l *link) readAcks(in *bufio.Reader) {
	buf := make([]byte, 64)
	for {
		kind, body, err := readPacket(in, buf)
		if err != nil {
			l.cut()
			return
		}
		if kind != packetPuback || len(body) != 2 {
			continue
		}
		s, ok := l.window.ack(binary.BigEndian.Uint16(body))
		if ok && l.fleet.book.Streams[s.stream].Ack(s.number) {
			l.fleet.Acked.Add(1)
		}
	}
}

// resend writes everything unacknowledged again, oldest first, marked DUP, under its packet id.
func (l *link) resend() error {
	for _, s := range l.window.waiting(nil) {
		l.fleet.Dups.Add(1)
		if err := l.write(s.stream, s.number, s.id, true); err != nil {
			return err
		}
	}
	return l.flush()
}

// pump sends what is due, when it is due, until the plan ends and all is acknowledged.
func (l *link) pump(ctx context.Context, lost <-chan struct{}) error {
	for {
		due, ok := l.make()
		if !ok {
			return l.drain(ctx, lost)
		}
		if err := l.awaitDue(ctx, lost, due); err != nil {
			return err
		}
		if err := l.sendPending(ctx, lost); err != nil {
			return err
		}
	}
}

// make writes the next report into the ledger unless one is waiting already; false when there are no more.
func (l *link) make() (due time.Duration, ok bool) {
	if l.pending != nil {
		return 0, true
	}
	due, ok = l.plan.next()
	if !ok {
		return 0, false
	}
	d := &l.devices[l.turn]
	l.turn = (l.turn + 1) % len(l.devices)
	load := &l.fleet.load
	size := uint16(load.PayloadMin + l.rng.IntN(load.PayloadMax-load.PayloadMin+1))
	number := d.step(l.rng, load.Mix, l.fleet.book.Streams[d.stream], int64(due), size)
	l.pending = &outgoing{d.stream, number}
	if l.offline && due >= load.Offline.From && due < load.Offline.To {
		l.fleet.book.Streams[d.stream].MarkLate(number)
		due = load.Offline.To
	}
	return due, true
}

// awaitDue lets what is buffered go when there is time to, and sleeps.
func (l *link) awaitDue(ctx context.Context, lost <-chan struct{}, due time.Duration) error {
	for {
		left := time.Until(l.fleet.book.Start.Add(due))
		if left <= 0 {
			return nil
		}
		if err := l.flush(); err != nil {
			return err
		}
		timer := time.NewTimer(min(max(left, pace), keepAlive/3))
		select {
		case <-timer.C:
		case <-lost:
			timer.Stop()
			return errLinkLost
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		if err := l.ping(); err != nil {
			return err
		}
	}
}

// ping keeps an idle connection alive.
func (l *link) ping() error {
	if time.Since(l.wrote) < keepAlive/3 {
		return nil
	}
	if _, err := l.out.Write([]byte{packetPingreq, 0}); err != nil {
		return err
	}
	l.wrote = time.Now()
	return l.flush()
}

func (l *link) sendPending(ctx context.Context, lost <-chan struct{}) error {
	for {
		id, ok := l.window.push(l.pending.stream, l.pending.number)
		if ok {
			p := l.pending
			l.pending = nil
			l.fleet.Sent.Add(1)
			return l.write(p.stream, p.number, id, false)
		}
		if err := l.flush(); err != nil {
			return err
		}
		if err := l.window.awaitSpace(ctx, lost); err != nil {
			return err
		}
	}
}

// drain waits for the last acknowledgements.
func (l *link) drain(ctx context.Context, lost <-chan struct{}) error {
	if err := l.flush(); err != nil {
		return err
	}
	for !l.window.empty() {
		if err := l.window.awaitSpace(ctx, lost); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) pumpClosing(ctx context.Context, lost <-chan struct{}, next *int) error {
	for l.pending != nil || *next < len(l.devices) {
		if l.pending == nil {
			d := &l.devices[*next]
			*next++
			s := l.fleet.book.Streams[d.stream]
			due := time.Since(l.fleet.book.Start)
			r := ledger.Report{Due: int64(due), Size: uint16(l.fleet.load.PayloadMin), Boot: d.bootOrNone(), Late: true}
			l.pending = &outgoing{d.stream, d.move(l.rng, Mix{}, s, r)}
		}
		if err := l.sendPending(ctx, lost); err != nil {
			return err
		}
	}
	return l.drain(ctx, lost)
}

// write buffers one PUBLISH.
func (l *link) write(stream int, number uint32, id uint16, dup bool) error {
	s := l.fleet.book.Streams[stream]
	r, _ := s.Report(number)
	l.topic = ledger.AppendTopic(l.topic[:0], s)
	payload := l.fleet.book.AppendPayload(l.scratch[:0], stream, number, r)
	packet := appendPublish(payload, id, dup, l.topic, payload)
	_, err := l.out.Write(packet[len(payload):])
	l.scratch = packet[:0]
	l.wrote = time.Now()
	return err
}

func (l *link) flush() error {
	if l.out.Buffered() == 0 {
		return nil
	}
	return l.out.Flush()
}
