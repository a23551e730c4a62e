package devicestate

import (
	"fmt"
	"strings"
	"testing"
)

// Two keys that some reader takes for one, in small and in large objects; keys that only look alike must pass.
func TestScan_RefusesKeysThatSomeReaderTakesForOne(t *testing.T) {
	t.Parallel()
	for _, filler := range []int{0, 1, smallObject - 1, smallObject, 3 * smallObject} {
		var others strings.Builder
		for i := range filler {
			fmt.Fprintf(&others, `"filler%d":0,`, i)
		}
		for pair, refused := range map[[2]string]bool{
			{"seq", "seq"}: true, {"seq", "SEQ"}: true, {"seq", `\u0073eq`}: true, {"k", "\u212a"}: true, {"s", "ſ"}: true, {"ß", "ẞ"}: true,
			{"ÄÖ", "äö"}: true, {"", ""}: true, {"Σ", "ς"}: true, {"a\u212a", "AK"}: true,
			{"seq", "sep"}: false, {"a", "ab"}: false, {"ä", "a"}: false, {"i", "ı"}: false, {"@", "`"}: false, {"[", "{"}: false,
		} {
			text := fmt.Sprintf(`{"%s":1,%s"%s":2}`, pair[0], others.String(), pair[1])
			err := scan(&document{}, []byte(text), Limits{Payload: 1 << 20, Depth: 8, Exponent: 308})
			if (err != nil) != refused {
				t.Errorf("%d other keys, %q and %q: %v", filler, pair[0], pair[1], err)
			}
		}
	}
}

func BenchmarkDecoder(b *testing.B) {
	value := []byte(`{"message_id":"0190b2b6-7d5a-7cc0-8f7e-000000000001","device_id":"agv-1","hub_id":"h1","stream":"state","epoch":1,"sequence":7,` +
		`"occurred_at":"2026-12-01T04:00:00.000001Z","received_at":"2026-12-01T04:00:00.000002Z","counter":7,"boot":3,"marks":["reboot"],` +
		`"totals":{"missed":1,"late":0,"duplicate":2,"quarantined":0},"state":{"battery":81,"position":{"x":117.25,"y":17.5},"mode":"AUTOMATIC","errors":[]}}`)
	var d Decoder
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(value); err != nil {
			b.Fatal(err)
		}
	}
}
