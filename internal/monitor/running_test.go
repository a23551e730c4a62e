package monitor

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestPage_OfARunningHub takes screenshots of a hub that is running elsewhere: HUBSTATE_PAGE_URL=http://127.0.0.1:8480.
// With `make run` for two minutes before, each of the simulated fleet's habits must be shown as what it is.
func TestPage_OfARunningHub(t *testing.T) {
	address := os.Getenv("HUBSTATE_PAGE_URL")
	if address == "" {
		t.Skip("HUBSTATE_PAGE_URL is not set")
	}
	b := newBrowser(t)
	b.do(chromedp.Navigate(address))
	b.says(".hubs", "devices", soon)
	b.until("the delays are drawn", `document.querySelector("svg.bands") !== null`, soon)
	b.shot("run-overview")
	var o Overview
	fetch(t, address+"/api/v1/overview", &o)
	if id := awaitOffline(t, address, o); id != "" {
		b.goTo("#/device/" + url.PathEscape(id))
		b.says("main h1", id, soon)
		b.says("main", "sequence", soon)
		b.shot("run-device-offline-" + strings.ReplaceAll(id, "/", "_"))
	}
	shown := map[string]bool{}
	for _, h := range o.Hubs {
		b.goTo("#/hub/" + url.PathEscape(h.ID))
		b.says("main h1", h.ID, soon)
		b.says("tbody", "ago", soon)
		b.shot("run-" + h.ID)
		for _, f := range Filters() {
			var page hubPage
			fetch(t, address+"/api/v1/hubs/"+url.PathEscape(h.ID)+"/devices?filter="+string(f), &page)
			if len(page.Rows) == 0 || shown[string(f)] {
				continue
			}
			shown[string(f)] = true
			id := mostTypical(page.Rows, f)
			b.goTo("#/device/" + url.PathEscape(id))
			b.says("main h1", id, soon)
			b.says("main", "sequence", soon)
			b.shot("run-device-" + string(f) + "-" + strings.ReplaceAll(id, "/", "_"))
		}
	}
	t.Logf("shown: %v", shown)
}

// mostTypical is a device that is what the filter says and nothing else: "silent" lists the connected ones too.
func mostTypical(rows []Row, f Filter) string {
	for _, r := range rows {
		if string(r.Status) == string(f) {
			return r.Device
		}
	}
	return rows[0].Device
}

// awaitOffline returns a device that is silent and not connected: they come and go.
func awaitOffline(t *testing.T, address string, o Overview) string {
	t.Helper()
	for range 90 {
		for _, h := range o.Hubs {
			var page hubPage
			fetch(t, address+"/api/v1/hubs/"+url.PathEscape(h.ID)+"/devices?filter=silent", &page)
			for _, r := range page.Rows {
				if r.Status == Silent {
					return r.Device
				}
			}
		}
		time.Sleep(time.Second)
	}
	t.Error("no device was silent and not connected within 90 s")
	return ""
}

func fetch(t *testing.T, address string, v any) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		t.Fatalf("%s: %v", address, err)
	}
}
