package ingest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// BenchmarkMQTT compares a running ingest (broker and database on this machine) with a plain subscriber of the same
// library that only acknowledges: same broker, sessions, payload (250 bytes, QoS 1). One iteration is one message.
func BenchmarkMQTT(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as cmd/ingest does; the plain subscriber has it too
	for _, sessions := range []int{1, 2} {
		b.Run(fmt.Sprintf("plain/sessions=%d", sessions), func(b *testing.B) {
			broker, got := testenv.MQTT(b), &atomic.Int64{}
			for s := range sessions {
				plainSubscriber(b, broker, s, got)
			}
			measureMQTT(b, broker, sessions, got.Load)
		})
		b.Run(fmt.Sprintf("ingest/sessions=%d", sessions), func(b *testing.B) {
			broker := testenv.MQTT(b)
			r := startRig(b, testenv.Postgres(b), broker, func(c *Config) {
				c.Sessions = nil
				for s := range sessions {
					c.Sessions = append(c.Sessions, SessionConfig{Lane: fmt.Sprintf("%s-%d-%d", name(b), s, time.Now().UnixNano()), Filters: []string{benchHub(b, s) + "/+/+"}})
				}
			})
			r.waitReady()
			measureMQTT(b, broker, sessions, func() int64 { return int64(testutil.ToFloat64(r.service.metrics.class[devicestate.Applied])) })
			b.StopTimer()
			for _, s := range r.service.cfg.Sessions {
				r.stop()
				forgetSession(b, broker, s.ClientID)
			}
		})
	}
}

func benchHub(b *testing.B, session int) string {
	return fmt.Sprintf("hubs/%s-%d/devices", name(b), session)
}

func plainSubscriber(b *testing.B, broker string, session int, got *atomic.Int64) {
	b.Helper()
	opts := mqtt.NewClientOptions().AddBroker(strings.Replace(broker, "mqtt://", "tcp://", 1)).SetClientID(fmt.Sprintf("%s-%d", name(b), session)).
		SetOrderMatters(true).SetAutoAckDisabled(true)
	c := mqtt.NewClient(opts)
	if token := c.Connect(); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		b.Fatal(token.Error())
	}
	b.Cleanup(func() { c.Disconnect(0) })
	token := c.Subscribe(benchHub(b, session)+"/+/+", 1, func(_ mqtt.Client, m mqtt.Message) {
		m.Ack()
		got.Add(1)
	})
	if !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		b.Fatal(token.Error())
	}
}

// measureMQTT publishes b.N messages, as fast as the broker takes them, and waits until all have come.
func measureMQTT(b *testing.B, broker string, sessions int, got func() int64) {
	b.Helper()
	var wg sync.WaitGroup
	n := b.N / sessions
	b.ResetTimer()
	for s := range sessions {
		wg.Go(func() { floodMQTT(b, broker, benchHub(b, s), s, n) })
	}
	wg.Wait()
	for deadline := time.Now().Add(2 * time.Minute); got() < int64(n*sessions); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d came", got(), n*sessions)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// floodMQTT is a publisher that costs next to nothing: prepared packets, at most 1,000 without PUBACK.
func floodMQTT(b *testing.B, broker, prefix string, session, n int) {
	u, err := url.Parse(broker)
	if err != nil {
		b.Error(err)
		return
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		b.Error(err)
		return
	}
	defer conn.Close()
	id := prefix[len(prefix)-20:] + fmt.Sprint(time.Now().UnixNano()%1_000_000)
	connect := append([]byte{0x10, byte(12 + len(id)), 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, byte(len(id))}, id...)
	if _, err := conn.Write(connect); err != nil {
		b.Error(err)
		return
	}
	r := bufio.NewReader(conn)
	if _, err := r.Discard(4); err != nil {
		b.Error(err)
		return
	}
	window := make(chan struct{}, 1000)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the last PUBACK or the connection
		defer cancel()
		for range n {
			if _, err := r.Discard(4); err != nil {
				return
			}
			<-window
		}
	}()
	fleet := newBenchFleet(session, 4, false) // devices of its own: a device belongs to one hub
	var out []byte
	for i := range n {
		select {
		case window <- struct{}{}:
		default:
			if _, err := conn.Write(out); err != nil {
				b.Error(err)
				return
			}
			out = out[:0]
			window <- struct{}{}
		}
		p := fleet.publish(uint16(i%65_000+1), time.Now())
		topic := prefix + string(p.topic[strings.LastIndex(string(p.topic), "/devices/")+len("/devices"):])
		out = append(out, 0x32)
		out = binary.AppendUvarint(out, uint64(4+len(topic)+len(p.payload)))
		out = binary.BigEndian.AppendUint16(out, uint16(len(topic)))
		out = append(out, topic...)
		out = binary.BigEndian.AppendUint16(out, p.id)
		out = append(out, p.payload...)
		if len(out) > 16<<10 {
			if _, err := conn.Write(out); err != nil {
				b.Error(err)
				return
			}
			out = out[:0]
		}
	}
	if _, err := conn.Write(out); err != nil {
		b.Error(err)
	}
	<-ctx.Done()
}
