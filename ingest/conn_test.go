package ingest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// wireConn reads what the broker sends, cut into pieces of one size, and keeps what is written.
type wireConn struct {
	net.Conn
	in    *bytes.Reader
	piece int
	out   bytes.Buffer
}

func (w *wireConn) Read(p []byte) (int, error)       { return w.in.Read(p[:min(len(p), w.piece)]) }
func (w *wireConn) Write(p []byte) (int, error)      { return w.out.Write(p) }
func (w *wireConn) SetWriteDeadline(time.Time) error { return nil }

func wire(t *testing.T, list ...packets.ControlPacket) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range list {
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func publishPacket(topic, payload string, id uint16, qos byte, dup, retain bool) packets.ControlPacket {
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName, p.Payload, p.MessageID, p.Qos, p.Dup, p.Retain = topic, []byte(payload), id, qos, dup, retain
	return p
}

// Whatever the pieces in which bytes arrive: publishes are handed over in order, whole, and everything else passes
// through untouched.
func TestConn_TakesPublishesAndPassesTheRest(t *testing.T) {
	t.Parallel()
	connack := packets.NewControlPacket(packets.Connack).(*packets.ConnackPacket)
	connack.SessionPresent = true
	suback := packets.NewControlPacket(packets.Suback).(*packets.SubackPacket)
	suback.MessageID, suback.ReturnCodes = 7, []byte{1, 0x80}
	large := strings.Repeat("x", 3000)
	stream := wire(t, connack, publishPacket("a/b", "one", 1, 1, false, false), publishPacket("a/c", large, 2, 1, true, true), suback,
		packets.NewControlPacket(packets.Pingresp), publishPacket("", "", 0, 0, false, false))
	for _, piece := range []int{1, 2, 3, 7, 4096} {
		var got []publish
		g := newGeneration(1)
		c := newConn(&wireConn{in: bytes.NewReader(stream), piece: piece}, 1000, g, func(p publish) {
			p.topic = bytes.Clone(p.topic)
			got = append(got, p)
		})
		rest, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(rest, wire(t, connack, suback, packets.NewControlPacket(packets.Pingresp))) {
			t.Errorf("piece %d: passed %x, %v", piece, rest, err)
		}
		if len(got) != 3 || string(got[0].topic) != "a/b" || string(got[0].payload) != "one" || got[0].id != 1 || got[0].dup {
			t.Fatalf("piece %d: %+v", piece, got)
		}
		if got[1].size != 3000 || len(got[1].payload) != 1000 || !got[1].dup || !got[1].retained || got[2].qos != 0 || got[2].size != 0 {
			t.Errorf("piece %d: %+v", piece, got[1:])
		}
		if !g.present.Load() || !g.answered.Load() || c.pongs != 1 {
			t.Errorf("piece %d: present %v answered %v pongs %d", piece, g.present.Load(), g.answered.Load(), c.pongs)
		}
	}
}

func TestConn_MalformedPacketsEndTheConnection(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string][]byte{
		"topic longer than the packet": {0x30, 3, 0, 9, 'a'},
		"QoS 2":                        {0x34, 5, 0, 1, 'a', 0, 1},
		"QoS 3":                        {0x36, 5, 0, 1, 'a', 0, 1},
		"no packet id":                 {0x32, 3, 0, 1, 'a'},
		"length of five bytes":         {0x30, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"SUBACK of a megabyte":         {0x90, 0x80, 0x80, 0x40},
	} {
		c := newConn(&wireConn{in: bytes.NewReader(stream), piece: 4096}, 1000, newGeneration(1), func(publish) { t.Errorf("%s: delivered", name) })
		if _, err := io.ReadAll(c); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pong confirms the acks before its ping and no later ones; a pong to the library's own ping confirms nothing.
func TestConn_OnlyTheAnswerToOurPingConfirmsAcks(t *testing.T) {
	t.Parallel()
	g := newGeneration(1)
	w := &wireConn{in: bytes.NewReader(nil), piece: 1}
	g.conn = newConn(w, 1000, g, nil)
	if err := packets.NewControlPacket(packets.Pingreq).Write(g.conn); err != nil { // the library's keepalive
		t.Fatal(err)
	}
	var a acks
	a.send([]item{queued(g, 1), queued(g, 2)})
	a.send([]item{queued(g, 3)}) // a ping of ours is out: none with these
	g.pong(1)
	if n := g.confirmed.Load(); n != 0 {
		t.Errorf("%d confirmed by the answer to the library's ping", n)
	}
	g.pong(2)
	if n := g.confirmed.Load(); n != 2 {
		t.Errorf("%d confirmed, want 2", n)
	}
	a.send([]item{queued(g, 4)})
	g.pong(3)
	if n := g.confirmed.Load(); n != 4 {
		t.Errorf("%d confirmed, want 4", n)
	}
	want := []byte{0xc0, 0, 0x40, 2, 0, 1, 0x40, 2, 0, 2, 0xc0, 0, 0x40, 2, 0, 3, 0x40, 2, 0, 4, 0xc0, 0}
	if !bytes.Equal(w.out.Bytes(), want) {
		t.Errorf("wrote %x, want %x", w.out.Bytes(), want)
	}
}
