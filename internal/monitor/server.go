package monitor

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

//go:embed assets
var assets embed.FS

const (
	hubCells    = 600
	rowsAtMost  = 500
	rowsDefault = 100
	searchLimit = 20
)

// server serves the page and its JSON API. It only reads.
type server struct {
	cfg    Config
	screen *screen
	log    *slog.Logger

	mu       sync.Mutex
	listener net.Listener
}

func newServer(cfg Config, screen *screen, log *slog.Logger) *server {
	return &server{cfg: cfg, screen: screen, log: log}
}

// handler answers GET only; everything but the login needs the token, if there is one.
func (s *server) handler() http.Handler {
	files, err := fs.Sub(assets, "assets")
	if err != nil { // cannot happen: the directory is compiled in
		files = assets
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/live", s.live)
	mux.HandleFunc("GET /api/v1/overview", s.overview)
	mux.HandleFunc("GET /api/v1/bands", s.bands)
	mux.HandleFunc("GET /api/v1/hubs/{hub}/devices", s.devices)
	mux.HandleFunc("GET /api/v1/devices/{device...}", s.device)
	mux.HandleFunc("GET /api/v1/search", s.search)
	mux.HandleFunc("GET /api/v1/losses", s.losses)
	mux.Handle("GET /", http.FileServerFS(files))
	return s.guard(mux)
}

func (s *server) listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", s.cfg.PageAddr)
	if err != nil {
		return fmt.Errorf("listen on page_addr %s: %w", s.cfg.PageAddr, err)
	}
	s.listener = l
	return nil
}

func (s *server) addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// run serves until ctx ends; open pages end with ctx, so a stop does not wait for them.
func (s *server) run(ctx context.Context) error {
	srv := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		stopped <- srv.Shutdown(grace)
	})()
	s.log.Info("page served", "addr", s.addr())
	if err := srv.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve page: %w", err)
	}
	if err := <-stopped; err != nil {
		return errors.Join(fmt.Errorf("stop page: %w", err), srv.Close())
	}
	return nil
}

func (s *server) overview(w http.ResponseWriter, r *http.Request) {
	s.screen.refresh(r.Context(), time.Now())
	s.write(w, s.screen.current(), nil)
}

func (s *server) bands(w http.ResponseWriter, r *http.Request) {
	bands, err := s.screen.bands(r.Context(), time.Now())
	s.write(w, bands, err)
}

// hubPage is one part of a hub's list with the strip above it.
type hubPage struct {
	Now    time.Time `json:"now"`
	AsOf   time.Time `json:"as_of,omitzero"`
	Hub    Hub       `json:"hub"`
	Filter Filter    `json:"filter"`
	Offset int64     `json:"offset"`
	Rows   []Row     `json:"rows"`
}

func (s *server) devices(w http.ResponseWriter, r *http.Request) {
	page, err := s.hubPage(r.Context(), r.PathValue("hub"), r)
	s.write(w, page, err)
}

func (s *server) hubPage(ctx context.Context, hub string, r *http.Request) (hubPage, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	o := s.screen.begin(ctx, time.Now())
	q := s.screen.question(o.AsOf, o.Now, hubCells)
	hubs := []Hub{{ID: hub}}
	if err := s.screen.view.Summarize(ctx, hubs, q); err != nil {
		return hubPage{}, err
	}
	recent, err := s.screen.recent(ctx, o.Now)
	if err != nil {
		return hubPage{}, err
	}
	hubs[0].Delays = recent.Percentiles(hub)
	page := hubPage{Now: o.Now, AsOf: o.AsOf, Hub: hubs[0], Filter: filterOf(r.FormValue("filter")), Offset: number(r, "offset", 0, 1<<31)}
	page.Rows, err = s.screen.view.Devices(ctx, hub, page.Filter, Page{page.Offset, number(r, "limit", rowsDefault, rowsAtMost)}, q)
	return page, err
}

func filterOf(text string) Filter {
	for _, f := range Filters() {
		if string(f) == text {
			return f
		}
	}
	return FilterAll
}

// number reads a query parameter between 0 and limit.
func number(r *http.Request, name string, standard, limit int64) int64 {
	n, err := strconv.ParseInt(r.FormValue(name), 10, 64)
	if err != nil || n < 0 {
		return standard
	}
	return min(n, limit)
}

var errUnknownDevice = errors.New("the view does not know this device")

// devicePage is one device at one instant.
type devicePage struct {
	Now    time.Time `json:"now"`
	AsOf   time.Time `json:"as_of,omitzero"`
	Device Device    `json:"device"`
}

func (s *server) device(w http.ResponseWriter, r *http.Request) {
	page, err := s.devicePage(r.Context(), r.PathValue("device"))
	s.write(w, page, err)
}

func (s *server) devicePage(ctx context.Context, id string) (devicePage, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*readTimeout)
	defer cancel()
	o := s.screen.begin(ctx, time.Now())
	d, ok, err := s.screen.view.Device(ctx, id, s.screen.question(o.AsOf, o.Now, 0))
	if err == nil && !ok {
		err = errUnknownDevice
	}
	return devicePage{Now: o.Now, AsOf: o.AsOf, Device: d}, err
}

func (s *server) search(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*readTimeout)
	defer cancel()
	o := s.screen.begin(ctx, time.Now())
	ids, err := s.screen.view.Search(ctx, r.FormValue("q"), searchLimit)
	if err != nil {
		s.write(w, nil, err)
		return
	}
	rows, err := s.screen.view.Rows(ctx, ids, s.screen.question(o.AsOf, o.Now, 0))
	s.write(w, rows, err)
}

func (s *server) losses(w http.ResponseWriter, r *http.Request) {
	losses, err := s.screen.view.Losses(r.Context(), number(r, "limit", rowsDefault, rowsAtMost))
	s.write(w, losses, err)
}

// write answers with JSON. An error is told in words, without what the store said about itself.
func (s *server) write(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	status := http.StatusOK
	switch {
	case errors.Is(err, errUnknownDevice):
		status, v = http.StatusNotFound, map[string]string{"error": err.Error()}
	case err != nil:
		s.log.Debug("page request failed", "error", err)
		status, v = http.StatusServiceUnavailable, map[string]string{"error": "the view does not answer"}
	}
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.log.Debug("page request ended early", "error", err)
	}
}
