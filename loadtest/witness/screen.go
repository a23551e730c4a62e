package witness

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hubstate/hubstate/loadtest/ledger"
	"github.com/hubstate/hubstate/loadtest/oracle"
)

// readers is how many devices are looked up on the screen at once.
const readers = 8

// ReadScreen asks the monitor at base for every device of the ledger. A device it does not know is left out.
func ReadScreen(ctx context.Context, base string, book *ledger.Ledger) (map[ledger.Key]oracle.Shown, error) {
	screen := map[ledger.Key]oracle.Shown{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for _, s := range book.Streams {
		group.Go(func() error {
			shown, ok, err := readDevice(ctx, base, s.Device, s.Name)
			if err != nil || !ok {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			screen[ledger.Key{Device: s.Device, Stream: s.Name}] = shown
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("read the screen: %w", err)
	}
	return screen, nil
}

func readDevice(ctx context.Context, base, device, stream string) (shown oracle.Shown, ok bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/devices/"+url.PathEscape(device), nil)
	if err != nil {
		return shown, false, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return shown, false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return shown, false, nil
	}
	var page struct {
		Device struct {
			Streams []struct {
				Stream   string
				Epoch    int64
				Sequence int64
				Received time.Time `json:"received_at"`
			}
		}
	}
	if resp.StatusCode != http.StatusOK {
		return shown, false, fmt.Errorf("device %s: %s", device, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return shown, false, fmt.Errorf("device %s: %w", device, err)
	}
	for _, s := range page.Device.Streams {
		if s.Stream == stream {
			return oracle.Shown{Epoch: s.Epoch, Sequence: s.Sequence, ReceivedAt: s.Received}, true, nil
		}
	}
	return shown, false, nil
}
