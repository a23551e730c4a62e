package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hubstate/hubstate/devicestate"
	"github.com/hubstate/hubstate/outbox"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Service is one ingester: all lanes of its configuration.
type Service struct {
	cfg     Config
	pool    *pgxpool.Pool
	log     *slog.Logger
	matcher *devicestate.Matcher
	metrics *metrics
	outbox  *capacity
	bell    *outbox.Bell
	buckets int

	mu     sync.Mutex
	lanes  map[string]error // why a lane is not connected; nil = connected
	state  map[string]string
	queues []*queue
	onLane func(error)

	reached func(step) // see writer
}

// New prepares an ingester. pool must run as Role with SessionSettings; it is the caller's to close. log and reg must
// not be nil. The error joins everything that is wrong with cfg.
func New(cfg Config, pool *pgxpool.Pool, reg prometheus.Registerer, log *slog.Logger) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	profiles, err := LoadProfiles(cfg.Profiles)
	if err != nil {
		return nil, err
	}
	matcher, err := devicestate.NewMatcher(profiles, cfg.Limits())
	if err != nil {
		return nil, err
	}
	cfg = cfg.withSessions(filtersOf(profiles))
	if cfg.Instance == "" {
		if cfg.Instance, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("instance is not set and the host has no name: %w", err)
		}
	}
	s := &Service{cfg: cfg, pool: pool, log: log, matcher: matcher, bell: outbox.NewBell(), lanes: map[string]error{}, state: map[string]string{}, onLane: func(error) {}}
	s.metrics = newMetrics(reg, s)
	s.outbox = &capacity{pool: pool, max: cfg.OutboxMaxBytes, policy: cfg.OutboxFull, every: cfg.OutboxCheck, metrics: s.metrics, log: log}
	s.metrics.capBytes.Set(float64(cfg.OutboxMaxBytes))
	return s, nil
}

// OnReady sets what is told of every change of readiness: nil when all lanes are connected and subscribed, else what is
// missing. Call it before Run.
func (s *Service) OnReady(f func(error)) { s.onLane = f }

// Run ingests until ctx ends. It then commits and acknowledges what was read, within stop_timeout, and returns nil.
func (s *Service) Run(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	s.announce(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.outbox.run(ctx) })
	group.Go(func() error {
		return s.bell.Run(ctx, s.pool, func(err error) { s.log.Warn("relays not woken", "error", err) })
	})
	for _, cfg := range s.cfg.Sessions {
		s.setLane(cfg.Lane, "standby", errors.New("starting"))
	}
	sweep := &owedSweep{restater: newRestater(s.pool, s.buckets), outbox: s.outbox, metrics: s.metrics,
		report: func(err error) { s.log.Warn("owed events not emitted", "error", err) }}
	group.Go(func() error { return sweep.run(ctx) })
	for _, cfg := range s.cfg.Sessions {
		group.Go(func() error { return s.runLane(ctx, cfg) })
	}
	return group.Wait()
}

// commitTime is the median of five commits that reach the disk: the least that a message waits for its acknowledgement.
func (s *Service) commitTime(ctx context.Context) (time.Duration, error) {
	var times [5]time.Duration
	for i := range times {
		started := time.Now()
		if _, err := s.pool.Exec(ctx, probeCommit); err != nil {
			return 0, fmt.Errorf("probe commit: %w", err)
		}
		times[i] = time.Since(started)
	}
	slices.Sort(times[:])
	return times[len(times)/2], nil
}

// check refuses a database that can undo a commit, and learns the number of buckets.
func (s *Service) check(ctx context.Context) error {
	var fsync string
	if err := s.pool.QueryRow(ctx, readFsync).Scan(&fsync); err != nil {
		return fmt.Errorf("read fsync: %w", err)
	}
	if fsync != "on" && !s.cfg.AllowFsyncOff {
		return errors.New("the database runs with fsync = off: a crash could undo what was already published; set fsync = on")
	}
	if err := s.pool.QueryRow(ctx, readSettings).Scan(&s.buckets); err != nil {
		return fmt.Errorf("read settings of the cell (run `relay migrate` first?): %w", err)
	}
	return nil
}

// announce says what the broker's window allows at most, by the time that this database takes for a commit now.
func (s *Service) announce(ctx context.Context) {
	commit, err := s.commitTime(ctx)
	if err != nil {
		s.log.Warn("commit time not measured", "error", err)
	} else {
		bound := float64(s.cfg.BrokerWindow) / commit.Seconds() * float64(len(s.cfg.Sessions))
		s.log.Info("throughput bound: window ÷ time to ack × sessions", "window", s.cfg.BrokerWindow, "sessions", len(s.cfg.Sessions),
			"commit", commit.Round(10*time.Microsecond), "messages_per_second", int(bound))
	}
	for _, c := range s.cfg.Sessions {
		if c.Share != "" {
			s.log.Warn("shared subscription: the broker spreads one device over several sessions, so only counters keep its order, and an offline member strands what it was given",
				"lane", c.Lane, "share", c.Share)
		}
	}
}

// watchesBroker: of all sessions at one broker the first watches its counters.
func (s *Service) watchesBroker(cfg SessionConfig) bool {
	for _, c := range s.cfg.Sessions {
		if c.URL == cfg.URL {
			return c.Lane == cfg.Lane && !s.cfg.IgnoreDrops
		}
	}
	return false
}

// runLane holds one lane whenever it is ours, and waits as a standby while it is not.
func (s *Service) runLane(ctx context.Context, cfg SessionConfig) error {
	l := &lane{name: cfg.Lane, owner: s.cfg.Instance, ttl: s.cfg.Lease, pool: s.pool}
	log := s.log.With("lane", cfg.Lane)
	succeed := true // only at start: the owner of our name is our predecessor then, and a rival later
	for ctx.Err() == nil {
		if !s.waitForLane(ctx, l, succeed, log) {
			return nil
		}
		succeed = false
		log.Info("lane claimed", "term", l.term, "owner", l.owner)
		err := s.hold(ctx, cfg, l, log)
		if err != nil && !errors.Is(err, errLaneLost) {
			return fmt.Errorf("lane %s: %w", cfg.Lane, err)
		}
		if err != nil {
			log.Error("lane lost", "term", l.term, "error", err)
		}
	}
	return nil
}

// waitForLane polls until the lane is ours; false when ctx ended first.
func (s *Service) waitForLane(ctx context.Context, l *lane, succeed bool, log *slog.Logger) bool {
	for try := 0; ; try++ {
		ours, err := l.claim(ctx, succeed)
		switch {
		case ours:
			return true
		case ctx.Err() != nil:
			return false
		case err != nil:
			log.Warn("lane not claimed", "error", err)
			s.setLane(l.name, "standby", err)
		default:
			if try == 0 {
				log.Info("standing by: the lane has another owner")
			}
			s.setLane(l.name, "standby", errors.New("standby: another ingester owns the lane"))
		}
		if sleep(ctx, min(s.cfg.Lease/5, time.Second)) != nil {
			return false
		}
	}
}

// hold runs the session of an owned lane and releases the lane afterwards.
func (s *Service) hold(ctx context.Context, cfg SessionConfig, l *lane, log *slog.Logger) error {
	q := newQueue(s.cfg.QueueReports, s.cfg.QueueBytes)
	s.addQueue(q)
	defer s.removeQueue(q)
	session := &session{
		cfg: cfg, service: s, lane: l, queue: q, decoder: newDecoder(s.matcher, s.cfg.Limits(), cfg.Hub), log: log,
		ready: func(err error) { s.setReady(l.name, err) },
	}
	session.writer = newWriter(s.cfg, l, q, s)
	session.inherit()
	session.ready(errors.New("connecting"))
	err := session.run(ctx)
	s.setLane(l.name, "standby", errors.New("not owned"))
	if errors.Is(err, errLaneLost) {
		return err
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	if failed := l.release(release); failed != nil {
		log.Warn("lane not released", "error", failed) // the lease runs out by itself
	}
	return err
}

func (s *Service) setReady(lane string, err error) {
	if err == nil {
		s.setLane(lane, "connected", nil)
		return
	}
	s.setLane(lane, "disconnected", err)
}

func (s *Service) setLane(lane, state string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes[lane], s.state[lane] = err, state
	counts := map[string]float64{"connected": 0, "disconnected": 0, "standby": 0}
	for _, st := range s.state {
		counts[st]++
	}
	for st, n := range counts {
		s.metrics.lanes.WithLabelValues(st).Set(n)
	}
	s.onLane(s.readyLocked())
}

// Ready is nil when every lane is connected and subscribed, else what is missing, lane by lane.
func (s *Service) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readyLocked()
}

func (s *Service) readyLocked() error {
	var missing []string
	for _, c := range s.cfg.Sessions {
		err, known := s.lanes[c.Lane]
		switch {
		case !known:
			missing = append(missing, "lane "+c.Lane+": not started")
		case err != nil:
			missing = append(missing, "lane "+c.Lane+": "+err.Error())
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New(strings.Join(missing, "; "))
}

func (s *Service) addQueue(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues = append(s.queues, q)
}

func (s *Service) removeQueue(q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range s.queues {
		if o == q {
			s.queues = append(s.queues[:i], s.queues[i+1:]...)
			return
		}
	}
}

func (s *Service) queued() (reports, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		n, b := q.size()
		reports, bytes = reports+n, bytes+b
	}
	return reports, bytes
}
