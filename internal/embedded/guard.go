package embedded

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// errPublisherGone ends a publisher's wait: its connection has closed, so nobody waits for the PUBACK.
var errPublisherGone = errors.New("the publisher's connection has closed")

// sentWillTopic is where a will is sent to once the guard has routed it: nobody can match it by wildcard.
const sentWillTopic = "$hubstate/will-sent"

// guard repairs four faults of mochi 2.7.9, with its public hooks only. All were measured (docs/decisions/0006).
//
//   - PUBACK went out before the message was queued or stored. The guard routes the message itself inside OnPublish,
//     which runs before the PUBACK, and tells mochi to acknowledge but not to route.
//   - Beyond a session's limits messages were dropped silently. The guard makes the publisher wait instead: it runs in
//     the publisher's own goroutine, so TCP carries the pressure back.
//   - A session taken over by a new connection was copied first and registered then; what was routed in between was
//     lost. The guard lets nothing be routed to a session between OnSessionEstablish and OnSessionEstablished, and lets
//     what is being routed finish first.
//   - The backlog was sent again in the order of whole seconds, that is, at random. The guard numbers every message and
//     renumbers a backlog 0, 1, 2 … before it is sent again, which fits the 16 bits mochi sorts by.
//
// Two clients that publish to each other and both stop reading block each other; Hubstate's devices only publish and its
// ingesters only subscribe.
type guard struct {
	mqtt.HookBase
	server *mqtt.Server
	inline *mqtt.Client // routes on behalf of publishers
	window int
	queue  int
	number atomic.Int64
	lost   sync.Map // token of a routing in progress whose message did not fit into a connection's send queue

	mu       sync.Mutex
	sessions map[string]*session
}

// session is what the guard knows of one subscriber, by client id.
type session struct {
	resuming *mqtt.Client  // the connection that takes the session over now; counts only while it is open
	routing  int           // publishers that are routing to the session now
	changed  chan struct{} // non-nil while somebody waits; closed at any change
}

func newGuard(server *mqtt.Server, window, queue int) *guard {
	g := &guard{server: server, window: window, queue: queue, sessions: map[string]*session{}}
	g.inline = server.NewClient(nil, mqtt.LocalListener, "hubstate-guard", true)
	g.number.Store(time.Now().UnixNano()) // above the numbers of any earlier life, kept in the store
	return g
}

// ID implements mqtt.Hook.
func (g *guard) ID() string { return "hubstate-guard" }

// Provides implements mqtt.Hook.
func (g *guard) Provides(event byte) bool {
	return bytes.IndexByte([]byte{mqtt.OnPublish, mqtt.OnPublishDropped, mqtt.OnQosComplete, mqtt.OnSessionEstablish,
		mqtt.OnSessionEstablished, mqtt.OnDisconnect, mqtt.OnWill}, event) >= 0
}

// OnPublish routes a QoS 1 or 2 message before it is acknowledged. Without a route it is not acknowledged either.
func (g *guard) OnPublish(client *mqtt.Client, packet packets.Packet) (packets.Packet, error) {
	if client.Net.Inline {
		packet.Created = g.number.Add(1)
		return packet, nil
	}
	if packet.FixedHeader.Qos == 0 {
		return packet, nil
	}
	// A client that hears itself cannot wait for itself: its acknowledgements come in through this goroutine.
	full := func(subscriber *mqtt.Client, s *session) bool { return subscriber != client && g.full(subscriber, s) }
	if err := g.route(packet, client.Closed, full); err != nil {
		return packet, packets.ErrRejectPacket
	}
	return packet, packets.CodeSuccessIgnore
}

// OnWill routes a will like any other message, so that it is numbered and not lost in a take-over. It does not wait for
// a full session: a late "offline" could overtake the device's next "online". Wills with a delay stay mochi's.
func (g *guard) OnWill(client *mqtt.Client, will mqtt.Will) (mqtt.Will, error) {
	if will.WillDelayInterval > 0 {
		return will, nil
	}
	packet := packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: will.Qos, Retain: will.Retain},
		TopicName:   will.TopicName, Payload: will.Payload, Properties: packets.Properties{User: will.User},
		PacketID: 1, // never sent, but QoS 1 without one is invalid
	}
	never := func() bool { return false }
	notFull := func(*mqtt.Client, *session) bool { return false }
	if g.route(packet, never, notFull) != nil {
		return will, nil // mochi refuses such a packet: let it treat its will as it likes
	}
	return mqtt.Will{TopicName: sentWillTopic}, nil
}

// route hands one message to all sessions that match, again if it did not fit into a connection's send queue. Sessions
// that took it the first time see it twice then, as QoS 1 may.
func (g *guard) route(packet packets.Packet, gone func() bool, full func(*mqtt.Client, *session) bool) error {
	token := strconv.FormatInt(g.number.Add(1), 36)
	packet.Connect.ClientIdentifier = token // carried along unread; OnPublishDropped finds it there
	for {
		entered, err := g.enter(packet.TopicName, gone, full)
		if err != nil {
			return err
		}
		err = g.server.InjectPacket(g.inline, packet)
		g.leave(entered)
		if err != nil {
			return err
		}
		if _, lost := g.lost.LoadAndDelete(token); !lost {
			return nil
		}
		time.Sleep(time.Millisecond) // the connection's writer makes room, or the connection ends
	}
}

// OnPublishDropped notes a message that found no room, for the routing that is in progress in this very goroutine. To a
// QoS 0 subscription it may be lost: somebody who only looks on must not hold up the publishers.
func (g *guard) OnPublishDropped(subscriber *mqtt.Client, packet packets.Packet) {
	token := packet.Connect.ClientIdentifier
	if token == "" || g.server.Topics.Subscribers(packet.TopicName).Subscriptions[subscriber.ID].Qos == 0 {
		return
	}
	g.lost.Store(token, struct{}{})
}

// enter waits until every session that matches the topic takes messages, and counts the caller in with all of them at
// once. It holds none while it waits for another: a session taken over waits for those inside.
func (g *guard) enter(topic string, gone func() bool, full func(*mqtt.Client, *session) bool) ([]*session, error) {
	for {
		g.mu.Lock()
		entered, changed := g.tryEnterLocked(topic, full)
		g.mu.Unlock()
		if changed == nil {
			return entered, nil
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond): // gone and Closed announce nothing
		}
		if gone() {
			return nil, errPublisherGone
		}
	}
}

// tryEnterLocked returns the sessions entered, or a channel that closes when the first blocked one changes.
func (g *guard) tryEnterLocked(topic string, full func(*mqtt.Client, *session) bool) ([]*session, <-chan struct{}) {
	subscriptions := g.server.Topics.Subscribers(topic).Subscriptions
	entered := make([]*session, 0, len(subscriptions))
	for id, subscription := range subscriptions {
		client, ok := g.server.Clients.Get(id)
		if !ok {
			continue
		}
		s := g.sessionLocked(id)
		if s.takenOver() || subscription.Qos > 0 && full(client, s) {
			if s.changed == nil {
				s.changed = make(chan struct{})
			}
			return nil, s.changed
		}
		entered = append(entered, s)
	}
	for _, s := range entered {
		s.routing++
	}
	return entered, nil
}

func (g *guard) full(client *mqtt.Client, s *session) bool {
	limit := g.window
	if client.Closed() {
		limit = g.queue
	}
	return client.State.Inflight.Len()+s.routing >= limit
}

// takenOver: a connection that closed before OnSessionEstablished gets no further hook calls, so its mark is void.
func (s *session) takenOver() bool { return s.resuming != nil && !s.resuming.Closed() }

func (g *guard) sessionLocked(id string) *session {
	s, ok := g.sessions[id]
	if !ok {
		s = &session{}
		g.sessions[id] = s
	}
	return s
}

func (g *guard) leave(entered []*session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range entered {
		s.routing--
		s.notifyLocked()
	}
}

func (s *session) notifyLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// OnQosComplete makes room in a session.
func (g *guard) OnQosComplete(client *mqtt.Client, _ packets.Packet) { g.notify(client.ID) }

func (g *guard) notify(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s, ok := g.sessions[id]; ok {
		s.notifyLocked()
	}
}

// OnSessionEstablish closes the session to publishers and waits for those inside, then puts its backlog in order.
// The old connection is ended first: a publisher may be stuck in a write to it, inside.
func (g *guard) OnSessionEstablish(client *mqtt.Client, packet packets.Packet) {
	existing, ok := g.server.Clients.Get(client.ID)
	if !ok || packet.Connect.Clean || existing.Properties.Clean {
		return
	}
	g.mu.Lock()
	s := g.sessionLocked(client.ID)
	s.resuming = client
	g.mu.Unlock()
	existing.Stop(packets.ErrSessionTakenOver)
	g.awaitRouted(s)
	renumber(existing.State.Inflight)
}

func (g *guard) awaitRouted(s *session) {
	for {
		g.mu.Lock()
		if s.routing == 0 {
			g.mu.Unlock()
			return
		}
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		g.mu.Unlock()
		<-changed
	}
}

// renumber gives a backlog the numbers 0, 1, 2 … in its order. An acknowledgement that arrives meanwhile may be undone:
// that message is delivered twice.
func renumber(inflight *mqtt.Inflight) {
	backlog := inflight.GetAll(false)
	slices.SortFunc(backlog, func(a, b packets.Packet) int { return cmp.Compare(a.Created, b.Created) })
	for i, packet := range backlog {
		packet.Created = int64(i)
		inflight.Set(packet)
	}
}

// OnSessionEstablished opens the session again: its backlog has been sent.
func (g *guard) OnSessionEstablished(client *mqtt.Client, _ packets.Packet) { g.reopen(client) }

// OnDisconnect wakes those who wait: another limit counts now.
func (g *guard) OnDisconnect(client *mqtt.Client, _ error, _ bool) { g.reopen(client) }

func (g *guard) reopen(client *mqtt.Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.sessions[client.ID]
	if !ok {
		return
	}
	if s.resuming == client {
		s.resuming = nil
	}
	s.notifyLocked()
}
