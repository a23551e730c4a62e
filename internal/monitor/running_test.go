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
			id := page.Rows[0].Device
			b.goTo("#/device/" + url.PathEscape(id))
			b.says("main h1", id, soon)
			b.says("main", "sequence", soon)
			b.shot("run-device-" + string(f) + "-" + strings.ReplaceAll(id, "/", "_"))
		}
	}
	t.Logf("shown: %v", shown)
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
