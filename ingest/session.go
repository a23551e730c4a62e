package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"golang.org/x/sync/errgroup"
)

const (
	reconnectMin  = time.Second
	reconnectMax  = 5 * time.Second
	drainTimeout  = 2 * time.Second // for what the broker sent before it read our DISCONNECT
	roomPoll      = 50 * time.Millisecond
	putPatience   = 5 * time.Second  // less than pingPatience
	errorInterval = 30 * time.Second // the same failure is logged once in this time
)

var (
	errStopped     = errors.New("stopping")
	errUntrusted   = errors.New("the lane's lease could not be renewed in time")
	errNoFreshRoom = errors.New("waiting for room in the queue")
)

// session owns one lane while this ingester holds it: a reconnect loop of its own (so that every CONNACK is seen), a
// reader per connection that decodes and queues, and one writer.
type session struct {
	cfg     SessionConfig
	service *Service
	lane    *lane
	queue   *queue
	decoder *decoder
	writer  *writer
	log     *slog.Logger
	ready   func(error)

	number   uint64 // of the last connection
	fresh    bool   // the broker's session is new, and nothing of it was received yet
	pending  []possibleGap
	endedAt  time.Time // of the last connection; zero before the first
	logged   string
	loggedAt time.Time
}

// run holds the lane until ctx ends (then everything read is committed first) or the lane is lost.
func (s *session) run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	group, both := errgroup.WithContext(work)
	group.Go(func() error { return s.writer.run(both) })
	if s.service.watchesBroker(s.cfg) {
		group.Go(func() error { return (&drops{session: s}).run(both) })
	}
	group.Go(func() error {
		defer cancel() // the writer has nothing left to do
		stop, done := mergeDone(ctx, both)
		defer done()
		if err := s.connectLoop(stop, both); err != nil {
			return err
		}
		return s.settle(both)
	})
	return group.Wait()
}

// inherit notes what a predecessor that did not stop in order may have cost.
func (s *session) inherit() {
	if !s.lane.crashed {
		return
	}
	gap := possibleGap{from: s.lane.committedAt, to: time.Now()}
	if s.lane.tail.qos0 {
		gap.cause, gap.detail = gapConnectionLost, "the owner before did not stop in order"
		s.pending = append(s.pending, gap)
	}
	if s.lane.inDoubt && s.lane.sessionSeen {
		gap.cause, gap.detail = gapSessionLost, "the owner before stopped while it connected: the broker may have made a new session"
		s.pending = append(s.pending, gap)
	}
}

// settle commits what is left of QoS 0 when a stop finds no connection.
func (s *session) settle(work context.Context) error {
	if n, _ := s.queue.size(); n == 0 || work.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(work, s.service.cfg.StopTimeout)
	defer cancel()
	if err := s.writer.flush(ctx); err != nil {
		s.log.Error("reports read but not committed at the stop", "error", err)
	}
	return nil
}

// mergeDone is a context that ends with either of two.
func mergeDone(a, b context.Context) (context.Context, func()) {
	merged, cancel := context.WithCancel(a)
	stop := context.AfterFunc(b, cancel)
	return merged, func() { stop(); cancel() }
}

// connectLoop connects again after 1 to 5 s. Before each CONNECT the lease is renewed, so two ingesters never fight over
// a client id. ctx asks for a stop; work ends when everything must.
func (s *session) connectLoop(ctx, work context.Context) error {
	for ctx.Err() == nil {
		g, err := s.connect(ctx)
		if errors.Is(err, errLaneLost) {
			return err
		}
		if err == nil {
			s.ready(nil)
			err = s.watch(ctx, work, g)
			s.ended(g, err)
			if errors.Is(err, errStopped) {
				return nil
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		s.ready(err)
		s.report(err)
		if sleep(ctx, reconnectMin+rand.N(reconnectMax-reconnectMin)) != nil {
			return nil
		}
	}
	return nil
}

// report logs a failure, the same one only now and then.
func (s *session) report(err error) {
	text := err.Error()
	if text == s.logged && time.Since(s.loggedAt) < errorInterval {
		return
	}
	s.logged, s.loggedAt = text, time.Now()
	s.log.Warn("session not connected", "error", text)
}

// connect makes one connection: lease, CONNECT, lost-session record, SUBSCRIBE when needed.
func (s *session) connect(ctx context.Context) (*generation, error) {
	if err := s.waitForRoom(ctx); err != nil {
		return nil, err
	}
	if err := s.lane.renew(ctx); err != nil {
		return nil, err
	}
	if err := s.recordPending(ctx); err != nil {
		return nil, err
	}
	s.number++
	g := newGeneration(s.number)
	g.fresh = s.fresh
	doubtful := s.lane.inDoubt
	client, err := s.open(ctx, g)
	if err == nil {
		err = s.resume(ctx, g, client, doubtful)
	}
	if err != nil {
		g.end(err)
		s.fresh = g.newSession() && !g.delivered()
		return nil, err
	}
	s.service.metrics.connections.Inc()
	s.log.Info("session connected", "client_id", s.cfg.ClientID, "session_present", g.present.Load(), "filters", len(s.cfg.Filters))
	return g, nil
}

// waitForRoom: a connection into a full queue would be dropped at its first messages.
func (s *session) waitForRoom(ctx context.Context) error {
	if s.queue.roomy() {
		return nil
	}
	s.ready(errNoFreshRoom)
	for !s.queue.roomy() {
		if err := sleep(ctx, roomPoll); err != nil {
			return err
		}
	}
	return nil
}

// open dials and sends CONNECT. From the CONNACK on, messages reach the queue.
func (s *session) open(ctx context.Context, g *generation) (mqtt.Client, error) {
	opts, err := s.cfg.clientOptions(s.cfg.ClientID)
	if err != nil {
		return nil, err
	}
	opts.SetCleanSession(false)
	opening, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	opts.SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
		raw, err := s.cfg.dial(opening)
		if err != nil {
			return nil, err
		}
		if err := s.lane.connecting(opening); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		c := newConn(raw, s.decoder.limit, g, func(p publish) { s.receive(g, p) })
		return c, g.take(c)
	})
	opts.SetConnectionLostHandler(func(_ mqtt.Client, err error) { g.end(err) })
	client := mqtt.NewClient(opts)
	if err := wait(ctx, client.Connect(), 2*connectTimeout); err != nil {
		client.Disconnect(0)
		return nil, fmt.Errorf("connect: %w", err)
	}
	return client, nil
}

func wait(ctx context.Context, token mqtt.Token, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-token.Done():
		return token.Error()
	case <-timer.C:
		return errors.New("no answer in time")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receive runs in the reader: decode, stamp, queue.
func (s *session) receive(g *generation, p publish) {
	if g.draining.Load() && p.qos > 0 {
		return // stopping: the broker keeps it
	}
	now := time.Now()
	g.seen(now, p.qos)
	s.service.metrics.received.Inc()
	it := s.decoder.decode(g, p, now)
	if !s.queue.put(&it, putPatience) {
		s.service.metrics.refused.Inc()
		s.service.metrics.abandoned.Inc() // what the connection still had in its buffer too
		g.end(errQueueFull)
	}
}

// resume compares what the broker remembers with what the lane expects. doubtful: an earlier CONNECT was never confirmed,
// so even a session that is present may have no subscription.
//
// The interleaving: the broker makes a new, empty session, and before our SUBSCRIBE is answered the link breaks. The next
// CONNACK says "session present". Trusting it would leave the lane without any subscription, and ready, for ever.
func (s *session) resume(ctx context.Context, g *generation, client mqtt.Client, doubtful bool) error {
	present := g.present.Load()
	if !present && s.lane.sessionSeen {
		s.lost()
	}
	if err := s.recordPending(ctx); err != nil {
		return err
	}
	if !present || doubtful || !slices.Equal(s.lane.filters, s.wanted()) {
		if err := s.subscribe(ctx, client, present); err != nil {
			return err
		}
	}
	return s.lane.subscribed(ctx, s.wanted())
}

// lost notes a session that the broker forgot, with the time that it may have missed.
func (s *session) lost() {
	from := s.endedAt
	if from.IsZero() {
		from = s.lane.committedAt
	}
	s.lane.sessionSeen = false // of this one; recorded once
	s.pending = append(s.pending, possibleGap{cause: gapSessionLost, from: from, to: time.Now(), detail: "client id " + s.cfg.ClientID})
	s.service.metrics.sessionsLost.Inc()
	s.log.Error("session lost by the broker", "client_id", s.cfg.ClientID, "from", from)
}

func (s *session) recordPending(ctx context.Context) error {
	for len(s.pending) > 0 {
		if err := s.lane.recordGap(ctx, s.pending[0]); err != nil {
			return err
		}
		s.service.metrics.possibleGaps.WithLabelValues(s.pending[0].cause).Inc()
		s.pending = s.pending[1:]
	}
	return nil
}

// wanted is what the session is to be subscribed to, filter and QoS.
func (s *session) wanted() []string {
	wanted := make([]string, 0, len(s.cfg.Filters))
	for _, f := range s.cfg.Filters {
		wanted = append(wanted, fmt.Sprintf("%d %s", *s.cfg.QoS, s.cfg.topicFilter(f)))
	}
	return wanted
}

// topicFilter is f as it is subscribed to: in a group when the subscription is shared.
func (s SessionConfig) topicFilter(f string) string {
	if s.Share == "" {
		return f
	}
	return "$share/" + s.Share + "/" + f
}

// subscribe sends SUBSCRIBE for all filters and takes back those that the session no longer wants. Each SUBSCRIBE
// replays all retained messages, so it is sent only to a new session or for changed filters.
func (s *session) subscribe(ctx context.Context, client mqtt.Client, present bool) error {
	if present {
		if err := s.unsubscribeOld(ctx, client); err != nil {
			return err
		}
	}
	filters := map[string]byte{}
	for _, f := range s.cfg.Filters {
		filters[s.cfg.topicFilter(f)] = byte(*s.cfg.QoS)
	}
	token := client.SubscribeMultiple(filters, nil)
	if err := wait(ctx, token, connectTimeout); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return granted(token.(*mqtt.SubscribeToken).Result(), filters)
}

// granted checks the SUBACK: a refused or downgraded filter is named.
func granted(result, wanted map[string]byte) error {
	var bad []string
	for filter, qos := range wanted {
		got, ok := result[filter]
		switch {
		case !ok:
			bad = append(bad, filter+" (not answered)")
		case got > 2:
			bad = append(bad, filter+" (refused)")
		case got < qos:
			bad = append(bad, fmt.Sprintf("%s (QoS %d instead of %d)", filter, got, qos))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fmt.Errorf("the broker does not grant %s; check its access list", strings.Join(bad, ", "))
}

func (s *session) unsubscribeOld(ctx context.Context, client mqtt.Client) error {
	var old []string
	for _, entry := range s.lane.filters {
		_, filter, ok := strings.Cut(entry, " ")
		if ok && !slices.ContainsFunc(s.cfg.Filters, func(f string) bool { return s.cfg.topicFilter(f) == filter }) {
			old = append(old, filter)
		}
	}
	if len(old) == 0 {
		return nil
	}
	if err := wait(ctx, client.Unsubscribe(old...), connectTimeout); err != nil {
		return fmt.Errorf("unsubscribe from filters no longer wanted: %w", err)
	}
	return nil
}

// watch waits for the end of a connection: its own, the lease's, or ours.
func (s *session) watch(ctx, work context.Context, g *generation) error {
	lease := time.NewTicker(s.lane.ttl / 10)
	defer lease.Stop()
	for {
		select {
		case <-g.done:
			return g.cause
		case now := <-lease.C:
			if s.lane.trustedFor(now) <= 0 {
				g.end(errUntrusted)
			}
		case <-ctx.Done():
			if work.Err() != nil { // the lane is lost: nothing more may be committed
				g.end(errLaneLost)
				return errStopped
			}
			s.stop(work, g)
			return errStopped
		}
	}
}

// stop: stop intake → commit → ack → DISCONNECT → take what the broker had already sent of QoS 0 → commit. It never
// unsubscribes: that would delete the session's backlog.
func (s *session) stop(work context.Context, g *generation) {
	ctx, cancel := context.WithTimeout(work, s.service.cfg.StopTimeout)
	defer cancel()
	g.draining.Store(true)
	defer g.end(errStopped)
	if s.writer.flush(ctx) != nil {
		return
	}
	if g.over.Load() || g.conn.writeAcks(appendDisconnect(nil), nil, ackTimeout) != nil {
		return
	}
	select {
	case <-g.done:
	case <-time.After(drainTimeout):
	case <-ctx.Done():
	}
	_ = s.writer.flush(ctx) // what is left then is the broker's again, except for QoS 0
}

// ended notes what a dropped connection may have cost.
func (s *session) ended(g *generation, cause error) {
	s.endedAt = time.Now()
	s.fresh = g.newSession() && !g.delivered()
	if errors.Is(cause, errStopped) {
		return
	}
	s.service.metrics.disconnects.WithLabelValues(disconnectCause(cause)).Inc()
	if g.qos0.Load() {
		s.pending = append(s.pending, possibleGap{cause: gapConnectionLost, from: g.seenAt(), to: s.endedAt, detail: disconnectCause(cause)})
	}
}

func disconnectCause(err error) string {
	switch {
	case errors.Is(err, errQueueFull):
		return "queue_full"
	case errors.Is(err, errUntrusted):
		return "lease"
	case errors.Is(err, errMalformed):
		return "protocol"
	}
	return "network"
}
