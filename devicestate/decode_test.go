package devicestate_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/devicestate"
)

func TestDecode_NamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	value := string(sample(t, "full"))
	for field, swap := range map[string][2]string{
		"message_id":  {`"message_id":"01`, `"message_id":"0x`},
		"device_id":   {`"device_id":"acme/A-001"`, `"device_id":""`},
		"hub_id":      {`"hub_id":`, `"hub":`},
		"stream":      {`"stream":"state"`, `"stream":7`},
		"epoch":       {`"epoch":3`, `"epoch":0`},
		"sequence":    {`"sequence":4711`, `"sequence":4711.0`},
		"occurred_at": {`"occurred_at":"2026`, `"occurred_at":"26`},
		"received_at": {`"received_at":"2026-03-29T01:00:00.123456Z"`, `"received_at":null`},
		"counter":     {`"counter":17`, `"counter":"17"`},
		"boot":        {`"boot":2`, `"boot":true`},
		"totals.late": {`"late":2`, `"late":2e0`},
		"state":       {`"state":`, `"State_":`},
	} {
		changed := strings.Replace(value, swap[0], swap[1], 1)
		if changed == value {
			t.Fatalf("%s: the sample has no %s", field, swap[0])
		}
		_, err := devicestate.DecodeEvent([]byte(changed))
		var decode *devicestate.DecodeError
		if !errors.As(err, &decode) || decode.Field != field || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

func TestDecode_RefusesWhatIsNoJSONForEverybody(t *testing.T) {
	t.Parallel()
	value := string(sample(t, "full"))
	for name, changed := range map[string]string{
		"nothing":             "",
		"half":                value[:len(value)/2],
		"two values":          value + "{}",
		"an array":            "[]",
		"null":                "null",
		"twice the same key":  strings.Replace(value, `"epoch":3`, `"epoch":3,"epoch":4`, 1),
		"two cases of a key":  strings.Replace(value, `"epoch":3`, `"epoch":3,"EPOCH":4`, 1),
		"NUL":                 strings.Replace(value, `"mode":"`, `"mode":"\u0000`, 1),
		"a lone surrogate":    strings.Replace(value, `"mode":"`, `"mode":"\ud800`, 1),
		"invalid UTF-8":       strings.Replace(value, `"mode":"`, "\"mode\":\"\xff", 1),
		"an exponent of 1e9":  strings.Replace(value, `"battery":87.5`, `"battery":1e999999999`, 1),
		"depth of 10,000":     strings.Replace(value, `"battery":87.5`, `"battery":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000), 1),
		"a control character": strings.Replace(value, `"mode":"`, "\"mode\":\"\n", 1),
	} {
		if changed == value {
			t.Fatalf("%s: nothing was changed", name)
		}
		if e, err := devicestate.DecodeEvent([]byte(changed)); err == nil {
			t.Errorf("%s: decoded as %+v", name, e)
		}
	}
}

func TestDecode_LetsANewerWritersFieldsThrough(t *testing.T) {
	t.Parallel()
	value := sample(t, "full")
	want, err := devicestate.DecodeEvent(value)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(value), `"marks":[`, `"added":{"epoch":99,"list":[1,{"a":null}]},"marks":["mark_of_tomorrow",`, 1)
	newer = strings.Replace(newer, `"totals":{`, `"totals":{"added":5,`, 1)
	got, err := devicestate.DecodeEvent([]byte(newer))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\n got %+v\nwant %+v", err, got, want)
	}
}

// TestDecode_MembersInAnyOrderAndSpacing: only our own writer's bytes are frozen, not what a reader must accept.
func TestDecode_MembersInAnyOrderAndSpacing(t *testing.T) {
	t.Parallel()
	e, err := devicestate.DecodeEvent([]byte(`{ "state" : [1, 2] , "sequence":1,"epoch":1, "stream":"state","hub_id":"h",
		"device_id":"d","received_at":"2026-01-01T01:00:00+01:00","message_id":"01890A5D-AC96-774B-BCCE-B302099A8057" }`))
	if err != nil {
		t.Fatal(err)
	}
	if string(e.State) != "[1, 2]" || e.Counter.OK || e.Boot.OK || !e.OccurredAt.IsZero() || e.ReceivedAt.UTC().Hour() != 0 || e.MessageID[0] != 1 {
		t.Errorf("%+v", e)
	}
}

func TestDecoder_CanBeReused(t *testing.T) {
	t.Parallel()
	var d devicestate.Decoder
	full, err := d.Decode(sample(t, "full"))
	if err != nil {
		t.Fatal(err)
	}
	state := string(full.State)
	for _, bad := range []string{"{", `{"a":1}`, strings.Repeat("[", 1000)} {
		if _, err := d.Decode([]byte(bad)); err == nil {
			t.Fatalf("%q was decoded", bad)
		}
	}
	if _, err := d.Decode(sample(t, "minimal")); err != nil {
		t.Fatal(err)
	}
	if string(full.State) != state || full.Device != "acme/A-001" {
		t.Error("an event changed when its decoder went on")
	}
}

// FuzzDecodeEvent: whatever is on the topic, decoding does not panic, and what was decoded can be written and read again.
func FuzzDecodeEvent(f *testing.F) {
	for name := range frozen() {
		f.Add(sample(f, name))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		e, err := devicestate.DecodeEvent(value)
		if err != nil {
			return
		}
		first := devicestate.AppendEvent(nil, &e)
		again, err := devicestate.DecodeEvent(first)
		if err != nil {
			t.Fatalf("%q was decoded, but written again as %q: %v", value, first, err)
		}
		if second := devicestate.AppendEvent(nil, &again); !bytes.Equal(first, second) {
			t.Fatalf("written %q, then %q", first, second)
		}
	})
}

func TestParseUUID_TakesTheCanonicalTextOnly(t *testing.T) {
	t.Parallel()
	id, err := devicestate.ParseUUID("0190B2b6-7d5a-7cc0-8f7e-00000000001f")
	if err != nil || id != [16]byte{0x01, 0x90, 0xb2, 0xb6, 0x7d, 0x5a, 0x7c, 0xc0, 0x8f, 0x7e, 0, 0, 0, 0, 0, 0x1f} {
		t.Errorf("%x, %v", id, err)
	}
	for _, bad := range []string{
		"", "0190b2b6-7d5a-7cc0-8f7e-00000000001", "0190b2b67d5a7cc08f7e00000000001f----", "0190b2b6-7d5a-7cc0-8f7e-00000000001g",
		"-190b2b6-7d5a-7cc0-8f7e-00000000001f", "0190b2b6-7d5a-7cc0-8f7e-0000000000-f", "0190b2b6 7d5a-7cc0-8f7e-00000000001f",
	} {
		if id, err := devicestate.ParseUUID(bad); err == nil {
			t.Errorf("%q is taken for %x", bad, id)
		}
	}
}
