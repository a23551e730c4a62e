package embedded_test

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

const patience = 60 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("waited %v in vain: %s", patience, what)
}

func listens(port int) bool {
	conn, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func await(t *testing.T, what string, token mqtt.Token) {
	t.Helper()
	if !token.WaitTimeout(patience) {
		t.Fatalf("%s: no answer", what)
	}
	if err := token.Error(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func clientOptions(broker, id string) *mqtt.ClientOptions {
	return mqtt.NewClientOptions().AddBroker(broker).SetClientID(id).SetAutoReconnect(false).SetConnectRetry(false).
		SetOrderMatters(true).SetKeepAlive(2 * time.Minute).SetWriteTimeout(time.Second)
}

// subscriber is a persistent session that notes per publisher what it sees for the first time, and in which order.
type subscriber struct {
	t      *testing.T
	url    string
	client mqtt.Client
	lost   chan struct{}
	ack    atomic.Bool

	mu         sync.Mutex
	unacked    []mqtt.Message
	received   int64 // first sights
	last       map[string]int
	inversions int
	will       int64
}

func newSubscriber(t *testing.T, broker string) *subscriber {
	t.Helper()
	s := &subscriber{t: t, url: broker, last: map[string]int{}}
	t.Cleanup(s.disconnect)
	return s
}

// connect resumes the session, or subscribes when the broker has none.
func (s *subscriber) connect(ack bool) {
	s.t.Helper()
	s.ack.Store(ack)
	lost := make(chan struct{})
	s.lost = lost
	opts := clientOptions(s.url, "contract-subscriber").SetCleanSession(false).SetAutoAckDisabled(true).
		SetDefaultPublishHandler(s.handle).
		SetConnectionLostHandler(func(mqtt.Client, error) { close(lost) })
	s.client = mqtt.NewClient(opts)
	token := s.client.Connect().(*mqtt.ConnectToken)
	await(s.t, "connect the subscriber", token)
	if !token.SessionPresent() {
		await(s.t, "subscribe", s.client.Subscribe("contract/#", 1, nil))
	}
}

func (s *subscriber) disconnect() {
	if s.client != nil {
		s.client.Disconnect(0)
	}
}

func (s *subscriber) awaitLost() {
	s.t.Helper()
	select {
	case <-s.lost:
	case <-time.After(patience):
		s.t.Fatal("the subscriber did not notice that its connection is gone")
	}
}

// handle reads "publisher number"; a will says so.
func (s *subscriber) handle(_ mqtt.Client, message mqtt.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(message.Payload()) == "will" {
		s.will = s.received
		message.Ack()
		return
	}
	words := strings.Fields(string(message.Payload()))
	publisher := words[0]
	number, _ := strconv.Atoi(words[1])
	if last := s.last[publisher]; number > last {
		if number != last+1 {
			s.inversions++ // or a loss; either breaks the promise
		}
		s.last[publisher] = number
		s.received++
	}
	if s.ack.Load() {
		message.Ack()
		return
	}
	s.unacked = append(s.unacked, message)
}

func (s *subscriber) ackFromNowOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ack.Store(true)
	for _, message := range s.unacked {
		message.Ack()
	}
	s.unacked = nil
}

func (s *subscriber) firstSights() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

func (s *subscriber) willAfter() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.will
}

func (s *subscriber) awaitReceived(n int64) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%d messages arrive", n), func() bool { return s.firstSights() >= n })
}

// awaitAll waits for everything that was acknowledged to the publishers, and checks the order.
func (s *subscriber) awaitAll(p *publishers) {
	s.t.Helper()
	arrived := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range p.acked {
			if int64(s.last[strconv.Itoa(i)]) < p.acked[i].Load() {
				return false
			}
		}
		return true
	}
	deadline := time.Now().Add(patience)
	for !arrived() && time.Now().Before(deadline) {
		time.Sleep(2 * time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := int64(0)
	for i := range p.acked {
		lost += max(0, p.acked[i].Load()-int64(s.last[strconv.Itoa(i)]))
	}
	if lost != 0 || s.inversions != 0 {
		s.t.Fatalf("of %d acknowledged messages %d are lost at the end, %d out of order or lost between", p.acknowledged(), lost, s.inversions)
	}
}

// publishers send numbered messages, each in order, 20 at a time unacknowledged.
type publishers struct {
	t       *testing.T
	acked   []atomic.Int64
	done    sync.WaitGroup
	padding string
}

func publish(t *testing.T, broker string, count, each int) *publishers {
	t.Helper()
	return publishPadded(t, broker, count, each, 0)
}

// publishPadded sends messages of at least size bytes.
func publishPadded(t *testing.T, broker string, count, each, size int) *publishers {
	t.Helper()
	p := &publishers{t: t, acked: make([]atomic.Int64, count), padding: strings.Repeat("x", size)}
	for i := range count {
		client := mqtt.NewClient(clientOptions(broker, fmt.Sprintf("publisher-%d", i)))
		await(t, "connect a publisher", client.Connect())
		t.Cleanup(func() { client.Disconnect(0) })
		p.done.Go(func() { p.run(client, i, each) })
	}
	return p
}

// run ends early when the broker dies; what was acknowledged until then counts.
func (p *publishers) run(client mqtt.Client, i, each int) {
	window := make(chan mqtt.Token, 20)
	var counted sync.WaitGroup
	counted.Go(func() {
		for token := range window {
			if token.WaitTimeout(patience) && token.Error() == nil {
				p.acked[i].Add(1)
			}
		}
	})
	for n := 1; n <= each && client.IsConnectionOpen(); n++ {
		window <- client.Publish("contract/"+strconv.Itoa(i), 1, false, fmt.Sprintf("%d %d %s", i, n, p.padding))
	}
	close(window)
	counted.Wait()
}

func (p *publishers) wait() { p.done.Wait() }

func (p *publishers) acknowledged() (n int64) {
	for i := range p.acked {
		n += p.acked[i].Load()
	}
	return n
}

// neverMoreThan checks that no more than limit messages are acknowledged for a while.
func (p *publishers) neverMoreThan(limit int64, while time.Duration) {
	p.t.Helper()
	for deadline := time.Now().Add(while); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if n := p.acknowledged(); n > limit {
			p.t.Fatalf("%d messages acknowledged although only %d may wait", n, limit)
		}
	}
}

// publishThenDie sends reports and then loses its connection without a word, so that its will is sent.
func publishThenDie(t *testing.T, broker string, reports int) {
	t.Helper()
	u, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	var conn net.Conn
	opts := clientOptions(broker, "mortal").SetWill("contract/0", "will", 1, false).
		SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
			conn, err = net.Dial("tcp", u.Host)
			return conn, err
		})
	client := mqtt.NewClient(opts)
	await(t, "connect", client.Connect())
	for n := range reports {
		await(t, "publish", client.Publish("contract/0", 1, false, fmt.Sprintf("0 %d", n+1)))
	}
	_ = conn.Close()
}

// listenToAll subscribes to # and tells the topics of what arrives.
func listenToAll(t *testing.T, broker string) <-chan string {
	t.Helper()
	topics := make(chan string, 100)
	client := mqtt.NewClient(clientOptions(broker, "listener"))
	await(t, "connect", client.Connect())
	t.Cleanup(func() { client.Disconnect(0) })
	await(t, "subscribe", client.Subscribe("#", 1, func(_ mqtt.Client, message mqtt.Message) { topics <- message.Topic() }))
	return topics
}

// onlooker subscribes with QoS 0 by hand and then never reads again: its window fills, then the broker's send queue.
func onlooker(t *testing.T, broker string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(broker, "mqtt://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	connect := "\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04look"
	subscribe := "\x82\x0f\x00\x01\x00\x0acontract/#\x00"
	for _, packet := range []string{connect, subscribe} {
		if _, err := conn.Write([]byte(packet)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 16)); err != nil { // CONNACK, SUBACK
			t.Fatal(err)
		}
	}
	return conn
}
