package monitor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/devicestate"
)

// screens is where screenshots are kept as build output.
const screens = "../../build/screens"

// browser is one tab of a headless Chromium.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// newBrowser skips without a Chromium, except where CI promises one.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	switch {
	case path == "" && os.Getenv("CI") == "true":
		t.Fatal("no Chromium: run make setup")
	case path == "" || testing.Short():
		t.Skip("no Chromium, or -short")
	}
	if err := os.MkdirAll(screens, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(t.Context(), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true),
	))
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func eval[T any](b *browser, js string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](js))
	if err != nil {
		b.t.Fatalf("%s: %v", js, err)
	}
	return v
}

// until polls a condition of the page and returns how long it took.
func (b *browser) until(what, js string, limit time.Duration) time.Duration {
	b.t.Helper()
	start := time.Now()
	for !eval[bool](b, js) {
		if time.Since(start) > limit {
			b.shot("failed")
			b.t.Fatalf("never: %s (%s)\nbanner: %s", what, js, eval[string](b, `document.getElementById("banner").textContent`))
		}
		time.Sleep(20 * time.Millisecond) // a poll, not a wait for a state
	}
	return time.Since(start)
}

func (b *browser) shot(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(screens, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) prefer(feature, value string) {
	b.t.Helper()
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: feature, Value: value}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, params); err != nil {
		b.t.Fatal(err)
	}
}

// trust waits until the page judges itself so.
func (b *browser) trust(level string, limit time.Duration) time.Duration {
	b.t.Helper()
	return b.until("trust "+level, `document.body.dataset.trust === "`+level+`"`, limit)
}

// says waits until the text of the element that selector names contains words.
func (b *browser) says(selector, words string, limit time.Duration) time.Duration {
	b.t.Helper()
	return b.until(selector+" says "+words, fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q) === true`, selector, words), limit)
}

const (
	pageDevices = 20000
	pageExpect  = 10 * time.Minute
	soon        = 10 * time.Second
)

// pageFleet is three hubs with 20,000 devices: most fresh, some with gaps, a wrong clock, connected but silent, never
// seen.
func pageFleet(s *stage) (records []*kgo.Record, events int64) {
	r := rand.New(rand.NewPCG(7, 7))
	now := time.Now()
	for i := range pageDevices {
		hub := "hub-" + strconv.Itoa(i%3+1)
		received := now.Add(-time.Duration(r.Int64N(int64(pageExpect * 6 / 10))))
		change := func(*devicestate.Event) {}
		switch {
		case i%3 == 0 && i%500 == 0:
			received = now.Add(-time.Duration(1+r.IntN(60)) * time.Hour)
		case i%700 == 1:
			change = func(e *devicestate.Event) { e.Missed = 3 + int64(r.IntN(40)) }
		case i%900 == 4:
			change = func(e *devicestate.Event) { e.Marks, e.OccurredAt = devicestate.MarkClockSuspect, time.Time{} }
		case i%3000 == 10:
			change = func(e *devicestate.Event) { e.Marks = devicestate.MarkRetained }
		}
		records = append(records, s.say(hub, name(i), "state", `{"battery":`+strconv.Itoa(r.IntN(100))+`,"driving":true,"errors":[]}`, received, change))
		if i%1000 == 0 {
			records = append(records, s.say(hub, name(i), "connection", `{"connectionState":"ONLINE"}`, now.Add(-time.Hour), nil))
		}
	}
	return records, int64(len(records))
}

// profileOf writes a profile whose states may be quiet for expect.
func profileOf(t *testing.T, expect time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.yaml")
	text := "name: page\ntopics: [{pattern: 'hubs/{hub}/{device}/{stream}'}]\nstreams:\n  state: {counter: none, expect: " + expect.String() +
		"}\n  pulse: {counter: none, expect: 3s}\n  connection: {kind: connection, counter: none}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPage_TellsTheThreeQuestionsApartAndAdmitsWhatItHasNotSeen(t *testing.T) {
	b := newBrowser(t)
	s := newStage(t, true)
	s.profile = profileOf(t, pageExpect)
	records, events := pageFleet(s)
	s.publish(records...)
	m := s.monitor(nil)
	m.until("20,000 devices", func(o *Overview) bool { return o.seen(events) })
	s.liveTraffic(200)

	b.overviewOf20000(b.load("http://" + m.Addr() + "/"))
	b.deviceAndHub(s)
	b.hubGoesSilent(s)
	b.relayStops(s)
	b.kafkaStops(s)
	b.monitorStops(m)
}

func (b *browser) overviewOf20000(firstPaint time.Duration) {
	b.t.Helper()
	b.says(".hubs", "6\u202f667 devices", soon)
	b.trust("warn", soon)
	b.says(".findings", "devices with an implausible clock", soon)
	b.until("the delays are drawn", `document.querySelector("svg.bands") !== null`, 15*time.Second)
	b.pace(firstPaint)
	b.shot("overview-light")
	b.prefer("prefers-color-scheme", "dark")
	b.until("the dark theme", `getComputedStyle(document.documentElement).backgroundColor === "rgb(16, 22, 28)"`, soon)
	b.shot("overview-dark")
	b.prefer("prefers-color-scheme", "light")
	b.do(chromedp.EmulateViewport(390, 844))
	b.until("the narrow layout", `innerWidth === 390`, soon)
	b.until("no sideways scrolling", `document.documentElement.scrollWidth <= 390`, soon)
	if wide := eval[[]string](b, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 391 && !e.closest(".scroll, .hidden")).map((e) => e.tagName + "." + e.className)`); len(wide) > 0 {
		b.t.Errorf("wider than the window: %v", wide)
	}
	b.shot("overview-narrow")
	b.do(chromedp.EmulateViewport(1280, 900))
	b.prefer("prefers-reduced-motion", "reduce")
	if moves := eval[bool](b, `getComputedStyle(document.querySelector(".vouched")).transitionDuration !== "0s"`); moves {
		b.t.Error("things move although the viewer asked for less motion")
	}
	b.prefer("prefers-reduced-motion", "no-preference")
}

func (b *browser) deviceAndHub(s *stage) {
	b.t.Helper()
	clock := name(904)
	s.publish(s.say("hub-2", clock, "state", `{"battery":7,"errors":[{"type":"lidar","level":"WARNING"}]}`, time.Now(), func(e *devicestate.Event) {
		e.Marks, e.OccurredAt, e.Missed = devicestate.MarkClockSuspect|devicestate.MarkReboot, time.Time{}, 2
	}))
	b.goTo("#/device/" + url.PathEscape(clock))
	b.says("main h1", clock, soon)
	b.says("main", "clock suspect", soon)
	b.says(".timeline", "reboot", soon)
	b.shot("device-clock-suspect")
	b.goTo("#/hub/hub-1")
	b.says("tbody", "silent", soon)
	b.shot("hub")
	b.goTo("#/hub/hub-2?filter=clock_suspect&offset=0")
	b.says("tbody", "suspect", soon)
}

func (b *browser) hubGoesSilent(s *stage) {
	b.t.Helper()
	b.goTo("#/")
	var last []*kgo.Record
	for i := 2; i < pageDevices; i += 3 {
		last = append(last, s.say("hub-3", name(i), "pulse", `{}`, time.Now().Add(time.Duration(i)*time.Millisecond/20), nil))
	}
	s.publish(last...)
	b.says(".findings", "hub-3: the hub is silent", time.Minute)
	b.trust("bad", soon)
	b.shot("hub-silent")
}

// told checks that a stop is on the page in about a second; the allowance is for a browser on a machine with other work.
func (b *browser) told(what string, took time.Duration) {
	b.t.Helper()
	b.t.Logf("%s stopped: told after %v", what, took.Round(time.Millisecond))
	if took > 2500*time.Millisecond {
		b.t.Errorf("%s stopped: told after %v, want within a second", what, took)
	}
}

func (b *browser) relayStops(s *stage) {
	b.t.Helper()
	s.relay(false)
	s.backlog(500, 0)
	b.told("the relay", b.says("#banner", "no relay is running", soon))
	b.trust("old", soon)
	b.until("vouching ended", `getComputedStyle(document.querySelector(".hubs")).filter === "grayscale(1)"`, soon)
	b.shot("relay-stopped")
	s.relay(true)
	s.exec(`UPDATE outbox_bucket SET cursor = 1000000`)
	b.trust("bad", soon)
}

func (b *browser) kafkaStops(s *stage) {
	b.t.Helper()
	s.kafka.Close()
	b.told("Kafka", b.says(".findings", "Kafka does not answer", soon))
	b.trust("old", soon)
	b.says("#banner", "has not been seen", soon)
	b.shot("kafka-stopped")
}

func (b *browser) monitorStops(m *show) {
	b.t.Helper()
	m.stop()
	b.told("the monitor", b.trust("lost", soon))
	b.says("#banner", "No connection to the monitor", soon)
	b.shot("monitor-stopped")
}

// liveTraffic publishes reports that are measured, so that the delays have something to show.
func (s *stage) liveTraffic(n int) {
	for i := range n {
		s.publish(s.say("hub-"+strconv.Itoa(i%2+1), name(i%2+3*(i%50)), "state", `{"battery":50}`, time.Now().Add(-20*time.Millisecond), nil))
	}
}

func (b *browser) goTo(hash string) {
	b.t.Helper()
	eval[string](b, fmt.Sprintf(`(location.hash = %q)`, hash))
}

// load opens the page three times and returns the best first paint: other work on this machine must not decide.
func (b *browser) load(address string) time.Duration {
	b.t.Helper()
	best := time.Hour
	for range 3 {
		b.do(chromedp.Navigate(address))
		b.until("first paint", `performance.getEntriesByName("first-contentful-paint").length > 0`, soon)
		ms := eval[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
		best = min(best, time.Duration(ms*float64(time.Millisecond)))
	}
	return best
}

// pace checks the speed that people feel: the first paint, and what an update of the overview costs the main thread,
// drawing included.
func (b *browser) pace(first time.Duration) {
	b.t.Helper()
	eval[bool](b, `(window.long = [], new PerformanceObserver((l) => l.getEntries().forEach((e) => window.long.push(e.duration))).observe({type: "longtask"}), window.hubstate.updates.length = 0, true)`)
	b.until("four overviews", `window.hubstate.updates.filter((u) => u[0] === "overview").length >= 4`, 20*time.Second)
	updates := eval[[]float64](b, `window.hubstate.updates.filter((u) => u[0] === "overview").map((u) => u[1])`)
	long := eval[[]float64](b, `window.long`)
	slices.Sort(updates)
	b.t.Logf("first paint %v, overview update median %.1f ms, worst %.1f ms, tasks above 50 ms: %v", first, updates[len(updates)/2], updates[len(updates)-1], long)
	if first > 300*time.Millisecond {
		b.t.Errorf("first paint after %v, want under 300ms", first)
	}
	if updates[len(updates)/2] > 50 || len(long) > 1 {
		b.t.Errorf("updates keep the main thread: median %.1f ms, long tasks %v", updates[len(updates)/2], long)
	}
}

func TestPage_WorksByKeyboard(t *testing.T) {
	b := newBrowser(t)
	s := newStage(t, false)
	m := s.monitor(nil)
	s.publish(fleet(s, 30, 0)...)
	m.until("30 devices", func(o *Overview) bool { return o.seen(30) })
	b.do(chromedp.Navigate("http://" + m.Addr() + "/"))
	b.says(".hubs", "30 devices", soon)
	b.says("#banner", "All is well from Kafka on. What lies before it is not watched", soon) // there is no database
	b.do(chromedp.KeyEvent("/"))
	b.until("the search has the focus", `document.activeElement.id === "q"`, soon)
	b.do(chromedp.KeyEvent("00017"))
	b.says("#found", name(17), soon)
	b.do(chromedp.KeyEvent(kb.ArrowDown))
	b.until("the first hit has the focus", `document.activeElement.textContent.includes("00017")`, soon)
	eval[bool](b, `document.querySelector("#found a").dataset.drawn = "before"; document.getElementById("q").dispatchEvent(new Event("input"))`)
	b.until("the list was drawn anew, as after a slow answer", `document.querySelector("#found a")?.dataset.drawn === undefined`, soon)
	b.until("the hit still has the focus", `document.activeElement.textContent.includes("00017")`, soon)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.says("main h1", name(17), soon)
	b.until("the list is closed", `document.getElementById("found").hidden`, soon)
	b.do(chromedp.Navigate("http://" + m.Addr() + "/"))
	b.says(".hubs", "30 devices", soon)
	for range 12 { // skip link, brand, search, the hub's link, …
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b, `document.activeElement.getAttribute("href") === "#/hub/hub-1"`) {
			b.do(chromedp.KeyEvent(kb.Enter))
			b.says("main h1", "hub-1", soon)
			return
		}
	}
	t.Fatal("the hub cannot be reached by Tab")
}
