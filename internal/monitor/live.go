package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// live is the stream of server-sent events behind a page: pulse (four a second), overview (one a second), bands (six a
// minute); with ?hub= also hub, with ?device= also device, once a second each.
func (s *server) live(w http.ResponseWriter, r *http.Request) {
	ch, ok := s.screen.listen(s.cfg.MaxViewers)
	if !ok {
		http.Error(w, "too many open pages", http.StatusServiceUnavailable)
		return
	}
	defer s.screen.leave(ch)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	out := &eventStream{w: w, flush: http.NewResponseController(w)}
	if _, err := fmt.Fprint(w, "retry: 500\n\n"); err != nil { // ms until a browser tries again
		return
	}
	if err := s.stream(r.Context(), r, ch, out); err != nil {
		s.log.Debug("page closed", "error", err)
	}
}

func (s *server) stream(ctx context.Context, r *http.Request, ch chan message, out *eventStream) error {
	hub, device := r.FormValue("hub"), r.FormValue("device")
	if hub == "" && device == "" { // what the first page shows at once, before the next turn
		if o := s.screen.current(); !o.Now.IsZero() {
			if err := out.value("overview", o); err != nil {
				return err
			}
		}
		if bands, err := s.screen.bands(ctx, time.Now()); err == nil {
			if err := out.value("bands", bands); err != nil {
				return err
			}
		}
	}
	detail := time.NewTicker(overviewEvery)
	defer detail.Stop()
	for {
		if err := s.detail(ctx, r, hub, device, out); err != nil {
			return err
		}
		if err := s.pump(ctx, ch, detail.C, out, hub != "" || device != ""); err != nil {
			return err
		}
	}
}

// pump passes messages on until the next turn of the detail. A page about a hub or device needs no overviews.
func (s *server) pump(ctx context.Context, ch chan message, turn <-chan time.Time, out *eventStream, detailed bool) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-ch:
			if detailed && m.name == "overview" {
				continue
			}
			if err := out.send(m); err != nil {
				return err
			}
		case <-turn:
			return nil
		}
	}
}

// detail sends what only this page asked for; a view that does not answer is told by the pulse.
func (s *server) detail(ctx context.Context, r *http.Request, hub, device string, out *eventStream) error {
	if hub != "" {
		if page, err := s.hubPage(ctx, hub, r); err == nil {
			return out.value("hub", page)
		}
	}
	if device != "" {
		if page, err := s.devicePage(ctx, device); err == nil {
			return out.value("device", page)
		}
	}
	return ctx.Err()
}

// eventStream writes server-sent events. A page that takes longer than writeTimeout to read one is closed; it comes back.
type eventStream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

const writeTimeout = 10 * time.Second

func (e *eventStream) value(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return e.send(message{name, data})
}

func (e *eventStream) send(m message) error {
	if err := e.flush.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("bound a write: %w", err)
	}
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", m.name, m.data); err != nil {
		return fmt.Errorf("send %s: %w", m.name, err)
	}
	return e.flush.Flush()
}
