package ingest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// MQTT 3.1.1 packet types that the connection looks at; everything else is the client library's.
const (
	packetConnack    = 2
	packetPublish    = 3
	packetPuback     = 4
	packetPingreq    = 12
	packetPingresp   = 13
	packetDisconnect = 14

	maxPacket  = 1<<28 - 1 // what the protocol can say
	maxOther   = 64 << 10  // a SUBACK of all filters we could ever send
	readBuffer = 64 << 10

	pubackBytes = 4
)

var errMalformed = errors.New("malformed MQTT packet")

// publish is one PUBLISH as it came off the wire. topic is valid until the next one; payload belongs to the receiver.
type publish struct {
	topic    []byte
	payload  []byte
	size     int // of the whole payload; payload is shorter when it exceeded the limit
	id       uint16
	qos      byte
	dup      bool
	retained bool
}

// conn is a broker connection between the MQTT library and the network. It takes PUBLISH packets out of the stream and
// hands them over right where they are read: one allocation and no goroutine switch a message, where the library's own
// way costs five. Everything else (CONNACK, SUBACK, …) passes to the library untouched. Acks leave as one write a batch.
//
// Read is called by the library's one reading goroutine, so deliver is called in the order of the wire. deliver may block
// for a few seconds at most: while it does, no PINGRESP is read.
type conn struct {
	net.Conn
	r       *bufio.Reader
	pass    []byte // what is left of a packet that is the library's
	limit   int    // payload bytes kept; longer payloads are cut
	gen     *generation
	deliver func(publish)

	topic  []byte // reused
	writes sync.Mutex
	pings  uint64 // PINGREQs written, the library's and ours; under writes
	pongs  uint64 // PINGRESPs read; the reader's
}

func newConn(raw net.Conn, limit int, g *generation, deliver func(publish)) *conn {
	return &conn{Conn: raw, r: bufio.NewReaderSize(raw, readBuffer), limit: limit, gen: g, deliver: deliver}
}

// Read gives the library the next bytes that are its own.
func (c *conn) Read(p []byte) (int, error) {
	for len(c.pass) == 0 {
		if err := c.nextPacket(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.pass)
	c.pass = c.pass[n:]
	return n, nil
}

func (c *conn) nextPacket() error {
	first, err := c.r.ReadByte()
	if err != nil {
		return err
	}
	length, err := binary.ReadUvarint(c.r) // MQTT's remaining length is the same encoding, of at most four bytes
	if err != nil {
		return err
	}
	if length > maxPacket {
		return fmt.Errorf("read packet: remaining length %d: %w", length, errMalformed)
	}
	if first>>4 == packetPublish {
		return c.publish(first, int(length))
	}
	if length > maxOther {
		return fmt.Errorf("read packet of type %d: remaining length %d: %w", first>>4, length, errMalformed)
	}
	head := binary.AppendUvarint([]byte{first}, length)
	c.pass = append(head, make([]byte, length)...)
	if _, err = io.ReadFull(c.r, c.pass[len(head):]); err != nil {
		return err
	}
	c.look(first>>4, c.pass[len(head):])
	return nil
}

// look takes from the library's packets what the generation needs before any message that follows them.
func (c *conn) look(kind byte, body []byte) {
	switch {
	case kind == packetPingresp:
		c.pongs++
		c.gen.pong(c.pongs)
	case kind == packetConnack && len(body) == 2:
		c.gen.present.Store(body[0]&1 == 1)
		c.gen.answered.Store(true)
	}
}

// publish reads the variable header and the payload. The payload is cut at the limit, so that one message cannot take
// more memory than was granted; the rest is read and forgotten.
func (c *conn) publish(first byte, length int) error {
	p := publish{qos: first >> 1 & 3, dup: first&8 != 0, retained: first&1 != 0}
	if p.qos > 1 {
		return fmt.Errorf("read publish: QoS %d was never subscribed: %w", p.qos, errMalformed)
	}
	size, err := c.readUint16(&length)
	if err != nil {
		return err
	}
	if int(size) > length {
		return fmt.Errorf("read publish: topic of %d bytes in %d: %w", size, length, errMalformed)
	}
	if cap(c.topic) < int(size) {
		c.topic = make([]byte, size)
	}
	p.topic = c.topic[:size]
	if _, err = io.ReadFull(c.r, p.topic); err != nil {
		return err
	}
	length -= int(size)
	if p.qos > 0 {
		if p.id, err = c.readUint16(&length); err != nil {
			return err
		}
	}
	p.size = length
	p.payload = make([]byte, min(length, c.limit))
	if _, err = io.ReadFull(c.r, p.payload); err != nil {
		return err
	}
	if _, err = c.r.Discard(length - len(p.payload)); err != nil {
		return err
	}
	c.deliver(p)
	return nil
}

func (c *conn) readUint16(left *int) (uint16, error) {
	if *left -= 2; *left < 0 {
		return 0, fmt.Errorf("read publish: too short: %w", errMalformed)
	}
	high, err := c.r.ReadByte()
	if err != nil {
		return 0, err
	}
	low, err := c.r.ReadByte()
	return uint16(high)<<8 | uint16(low), err
}

// Write serves the library. Packets from it and acks never mix: each is one write under the lock.
func (c *conn) Write(p []byte) (int, error) {
	c.writes.Lock()
	defer c.writes.Unlock()
	if len(p) > 0 && p[0]>>4 == packetPingreq {
		c.pings++
	}
	return c.Conn.Write(p)
}

// writeAcks writes ready-made packets of our own, bounded in time: a broker that does not read must not hold the writer
// of a lane. With asking a PINGREQ follows them; asking is told its number before it leaves, which tells its answer from
// the answers to the library's.
func (c *conn) writeAcks(p []byte, asking func(nth uint64), timeout time.Duration) error {
	c.writes.Lock()
	defer c.writes.Unlock()
	if asking != nil {
		c.pings++
		asking(c.pings)
		p = append(p, packetPingreq<<4, 0)
	}
	if err := c.Conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	if _, err := c.Conn.Write(p); err != nil {
		return err
	}
	return c.Conn.SetWriteDeadline(time.Time{})
}

func appendPuback(dst []byte, id uint16) []byte {
	return append(dst, packetPuback<<4, 2, byte(id>>8), byte(id))
}

func appendDisconnect(dst []byte) []byte { return append(dst, packetDisconnect<<4, 0) }
