package fleet

import (
	"bufio"
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// TestWindow_ForgetsOnlyWhatWasAcknowledged compares the ring with a plain list, over the wrap of packet ids.
func TestWindow_ForgetsOnlyWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWindow(rapid.IntRange(1, 9).Draw(t, "limit"))
		w.nextID = uint16(rapid.SampledFrom([]int{1, 500, 65530, 65535}).Draw(t, "first"))
		var model []sent
		for n := range uint32(60) {
			if rapid.Bool().Draw(t, "push") {
				id, ok := w.push(int(n), n)
				if wantOK := ringLoad(model) < len(w.ring); ok != wantOK {
					t.Fatalf("push said %v with %d waiting", ok, len(model))
				}
				if ok {
					model = append(model, sent{stream: int(n), number: n, id: id})
				}
				continue
			}
			id := uint16(rapid.IntRange(0, 65535).Draw(t, "unknown"))
			if open := unacked(model); len(open) > 0 && rapid.Bool().Draw(t, "known") {
				id = open[rapid.IntRange(0, len(open)-1).Draw(t, "which")].id
			}
			s, ok := w.ack(id)
			if want := take(model, id); ok != (want != nil) || ok && s.number != want.number {
				t.Fatalf("ack %d: %v %v, want %v", id, s, ok, want)
			}
		}
		if got, want := w.waiting(nil), unacked(model); len(got) != len(want) {
			t.Fatalf("waiting %v, want %v", got, want)
		}
	})
}

// ringLoad is how many places are taken: from the oldest unacknowledged to the newest.
func ringLoad(model []sent) int {
	for i, s := range model {
		if !s.acked {
			return len(model) - i
		}
	}
	return 0
}

func unacked(model []sent) []sent {
	var open []sent
	for _, s := range model {
		if !s.acked {
			open = append(open, s)
		}
	}
	return open
}

func take(model []sent, id uint16) *sent {
	for i := range model {
		if model[i].id == id && !model[i].acked {
			model[i].acked = true
			return &model[i]
		}
	}
	return nil
}

func TestReadPacket_RefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	for name, in := range map[string][]byte{
		"body larger than the buffer": {packetPuback, 200, 1, 0, 0},
		"endless length":              {packetPuback, 255, 255, 255, 255, 255},
		"cut off":                     {packetPuback, 2, 0},
	} {
		if _, _, err := readPacket(bufio.NewReader(bytes.NewReader(in)), make([]byte, 64)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
