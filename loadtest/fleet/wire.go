package fleet

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The MQTT 3.1.1 packets a publisher needs, and no more. A general client costs five times the CPU per message, which
// on a small machine is taken from what is measured.
const (
	packetConnect   = 0x10
	packetConnack   = 0x20
	packetPublish   = 0x30
	packetPuback    = 0x40
	packetPingreq   = 0xC0
	packetPingresp  = 0xD0
	packetDisconect = 0xE0

	flagQoS1 = 0x02
	flagDup  = 0x08
)

var errMalformed = errors.New("malformed MQTT packet")

// appendLength appends the variable-length size of the rest of a packet.
func appendLength(dst []byte, n int) []byte {
	for n >= 128 {
		dst = append(dst, byte(n)|128)
		n >>= 7
	}
	return append(dst, byte(n))
}

func appendString(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

// login is what a CONNECT carries beside the client id.
type login struct{ user, password string }

// appendConnect appends a CONNECT with a clean session: what is unacknowledged is remembered here, not at the broker.
func appendConnect(dst []byte, clientID string, keepAliveSeconds uint16, auth login) []byte {
	flags := byte(0x02)
	body := 10 + 2 + len(clientID)
	if auth.user != "" {
		flags |= 0x80
		body += 2 + len(auth.user)
	}
	if auth.password != "" {
		flags |= 0x40
		body += 2 + len(auth.password)
	}
	dst = appendString(appendLength(append(dst, packetConnect), body), "MQTT")
	dst = append(dst, 4, flags)
	dst = appendString(binary.BigEndian.AppendUint16(dst, keepAliveSeconds), clientID)
	if auth.user != "" {
		dst = appendString(dst, auth.user)
	}
	if auth.password != "" {
		dst = appendString(dst, auth.password)
	}
	return dst
}

// appendPublish appends a PUBLISH with QoS 1.
func appendPublish(dst []byte, id uint16, dup bool, topic, payload []byte) []byte {
	head := byte(packetPublish | flagQoS1)
	if dup {
		head |= flagDup
	}
	dst = appendLength(append(dst, head), 2+len(topic)+2+len(payload))
	dst = append(binary.BigEndian.AppendUint16(dst, uint16(len(topic))), topic...)
	return append(binary.BigEndian.AppendUint16(dst, id), payload...)
}

// readPacket reads one packet a broker sends to a publisher. buf holds bodies of up to its size; more is refused.
func readPacket(r *bufio.Reader, buf []byte) (kind byte, body []byte, err error) {
	kind, err = r.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	n, err := readLength(r)
	if err != nil {
		return 0, nil, err
	}
	if n > len(buf) {
		return 0, nil, fmt.Errorf("%w: %d bytes in a packet of kind %#x", errMalformed, n, kind)
	}
	_, err = io.ReadFull(r, buf[:n])
	return kind & 0xF0, buf[:n], err
}

func readLength(r *bufio.Reader) (int, error) {
	n := 0
	for shift := 0; shift < 28; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		n |= int(b&127) << shift
		if b < 128 {
			return n, nil
		}
	}
	return 0, errMalformed
}

// connackError explains the return code of a CONNACK.
func connackError(body []byte) error {
	if len(body) != 2 {
		return errMalformed
	}
	reasons := [...]string{"", "protocol version refused", "client id refused", "broker unavailable", "bad user or password", "not authorised"}
	if code := int(body[1]); code > 0 {
		if code < len(reasons) {
			return fmt.Errorf("broker refused the connection: %s", reasons[code])
		}
		return fmt.Errorf("broker refused the connection: code %d", code)
	}
	return nil
}
