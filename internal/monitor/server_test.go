package monitor

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/embedded"
)

const pageToken = "a-token-of-some-length"

// guarded answers like the page's server, without a view behind it.
func guarded(token string) http.Handler {
	s := newServer(Config{PageToken: token}, nil, nil)
	return s.guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }))
}

func ask(h http.Handler, method, target string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1:8480"
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestGuard_WithoutATokenOnlyThisMachineIsServed(t *testing.T) {
	t.Parallel()
	h := guarded("")
	for host, want := range map[string]int{
		"127.0.0.1:8480": 200, "localhost:8480": 200, "[::1]:8480": 200, "localhost": 200,
		"evil.example": 403, "10.0.0.7:8480": 403, "127.0.0.1.evil.example:8480": 403, "": 403,
	} {
		if w := ask(h, "GET", "/", func(r *http.Request) { r.Host = host }); w.Code != want {
			t.Errorf("host %q: %d, want %d", host, w.Code, want)
		}
	}
}

func TestGuard_TheTokenOpensByBearerOrLogin(t *testing.T) {
	t.Parallel()
	h := guarded(pageToken)
	bearer := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	}
	if w := ask(h, "GET", "/api/v1/overview", nil); w.Code != 401 || strings.Contains(w.Body.String(), "inside") {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/", nil); w.Code != 401 || !strings.Contains(w.Body.String(), `type="password"`) {
		t.Errorf("a browser is not asked for the token: %d", w.Code)
	}
	if w := ask(h, "GET", "/api/v1/overview", bearer("wrong-token-wrong-token")); w.Code != 401 {
		t.Errorf("wrong token: %d", w.Code)
	}
	if w := ask(h, "GET", "/api/v1/overview", bearer(pageToken)); w.Code != 200 || w.Body.String() != "inside" {
		t.Errorf("right token: %d", w.Code)
	}
	login := func(token string) *httptest.ResponseRecorder {
		return ask(h, "POST", "/login", func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(url.Values{"token": {token}, "next": {"//evil.example/x"}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		})
	}
	if w := login("wrong"); w.Code != 403 || len(w.Result().Cookies()) != 0 {
		t.Errorf("login with a wrong token: %d", w.Code)
	}
	w := login(pageToken)
	cookies := w.Result().Cookies()
	if w.Code != 303 || w.Header().Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("login: %d to %q, cookies %v", w.Code, w.Header().Get("Location"), cookies)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || strings.Contains(c.Value, pageToken) {
		t.Errorf("cookie %+v", c)
	}
	if w := ask(h, "GET", "/", func(r *http.Request) { r.AddCookie(c) }); w.Code != 200 || w.Body.String() != "inside" {
		t.Errorf("with the cookie: %d", w.Code)
	}
}

func TestGuard_PageMayLoadNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	csp := ask(guarded(""), "GET", "/", nil).Header().Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") {
		t.Errorf("policy %q", csp)
	}
	for _, file := range []string{"index.html", "login.html", "style.css", "app.js", "overview.js", "hub.js", "device.js", "draw.js"} {
		text, err := assets.ReadFile("assets/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, elsewhere := range []string{"http://", "https://", "//cdn", "@import"} {
			if got := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""); strings.Contains(got, elsewhere) {
				t.Errorf("%s mentions %s", file, elsewhere)
			}
		}
	}
}

func TestPage_OnlyReads(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	m := s.monitor(nil)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH"} {
		for _, path := range []string{"/", "/api/v1/overview", "/api/v1/hubs/h/devices", "/api/v1/devices/d"} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://"+m.Addr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, resp.StatusCode)
			}
		}
	}
}

func TestAPI_AnswersAboutHubsDevicesAndSearches(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	m := s.monitor(nil)
	s.publish(fleet(s, 130, 0)...)
	m.until("130 devices", func(o *Overview) bool { return o.seen(130) })
	var page hubPage
	if code := m.get("/api/v1/hubs/hub-1/devices?offset=100&limit=50", &page); code != 200 || len(page.Rows) != 30 || page.Hub.Counts.Devices != 130 {
		t.Errorf("%d: %d rows, %+v", code, len(page.Rows), page.Hub.Counts)
	}
	var d devicePage
	if code := m.get("/api/v1/devices/"+name(7), &d); code != 200 || d.Device.Device != name(7) || string(d.Device.Streams[0].State) != `{"battery":80}` {
		t.Errorf("%d %+v", code, d)
	}
	if st := d.Device.Streams[0]; st.Committed.IsZero() || st.Published.Before(st.Committed) || st.Applied.Before(st.Published) || *st.Counter != 1 {
		t.Errorf("instants %+v", st)
	}
	if code := m.get("/api/v1/devices/nobody/at-all", nil); code != 404 {
		t.Errorf("an unknown device: %d", code)
	}
	var rows []Row
	if code := m.get("/api/v1/search?q=agv-0012", &rows); code != 200 || len(rows) != 10 {
		t.Errorf("%d: %d hits", code, len(rows))
	}
	if code := m.get("/api/v1/hubs/hub-1/devices?offset=-5&limit=x&filter=%00", &page); code != 200 || len(page.Rows) != rowsDefault {
		t.Errorf("nonsense is not taken for defaults: %d, %d rows", code, len(page.Rows))
	}
}

// pulses reads the live stream and sends the arrival time of each pulse.
func pulses(t *testing.T, address string) <-chan Pulse {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	ch := make(chan Pulse, 100)
	go func() { // ends with the body
		defer close(ch)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		event := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == "pulse" {
				var p Pulse
				if json.Unmarshal([]byte(data), &p) == nil {
					ch <- p
				}
			}
		}
	}()
	return ch
}

func TestLive_SpeaksSoOftenThatSilenceMeansAStop(t *testing.T) {
	t.Parallel()
	s := newStage(t, false)
	m := s.monitor(func(c *Config) { c.MaxViewers = 2 })
	ch := pulses(t, "http://"+m.Addr()+"/api/v1/live")
	<-ch
	start := time.Now()
	for range 8 {
		if _, ok := <-ch; !ok {
			t.Fatal("the stream ended")
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("eight pulses took %v", took)
	}
	pulses(t, "http://"+m.Addr()+"/api/v1/live")
	resp, err := http.Get("http://" + m.Addr() + "/api/v1/live")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a third viewer got %d", resp.StatusCode)
	}
	m.stop() // must not wait for open pages
}

// stageWithRedis is a stage whose store is a Redis of its own, to be maltreated.
func stageWithRedis(t *testing.T) (*stage, *embedded.Redis) {
	t.Helper()
	server, err := embedded.StartRedis(t.Context(), embedded.RedisOptions{Dir: t.TempDir()})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(t.Context())) })
	s := newStage(t, false)
	s.redis = server.URL()
	return s, server
}

// A Redis that hangs, is emptied, is full or restarts: the page says so, and comes back by itself with the same view.
func TestService_SaysWhenItsStoreIsAwayAndRecovers(t *testing.T) {
	t.Parallel()
	s, server := stageWithRedis(t)
	m := s.monitor(nil)
	s.publish(fleet(s, 40, time.Hour)...)
	before := m.until("40 devices", func(o *Overview) bool { return o.seen(40) })

	ch := pulses(t, "http://"+m.Addr()+"/api/v1/live")
	<-ch
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	for p := range ch { // it goes on, and says what is wrong
		if !p.Pipeline.View.OK {
			break
		}
		if time.Since(paused) > 5*time.Second {
			t.Fatal("the pulse does not say that the store is away")
		}
	}
	o := m.until("the store is missed", func(o *Overview) bool { return !o.Pipeline.View.OK })
	if late := time.Since(paused); late > 5*time.Second {
		t.Errorf("noticed after %v", late)
	}
	if len(o.Findings) == 0 || !strings.Contains(o.Findings[0].Text, "store does not answer") || len(o.Hubs) != 1 {
		t.Errorf("%+v, hubs %d: what was known stays, and the page greys it", o.Findings, len(o.Hubs))
	}
	s.publish(s.say("hub-1", name(3), "state", `{}`, time.Now(), nil))
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	m.until("the store is back", func(o *Overview) bool { return o.Pipeline.View.OK && o.seen(41) })

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := m.until("the view is whole again", func(o *Overview) bool {
		h := o.hub("hub-1")
		return o.Pipeline.View.OK && !o.AsOf.IsZero() && h.Counts.Devices == 40 && h.Counts.Fresh == 1
	})
	b, a := before.hub("hub-1"), h.hub("hub-1")
	if !a.FirstSilentAt.Equal(b.FirstSilentAt) || a.Totals.Events != 41 {
		t.Errorf("the view came back differently:\n%+v\n%+v", b, a)
	}
}
