package main

import (
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
)

// With a standby named, a promoted standby must never lack what consumers have seen: nothing leaves that it has not flushed.
func TestRelay_PublishesOnlyWhatTheStandbyHas_O2(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts two PostgreSQL servers")
	}
	c := startCell(t)
	c.firstPast()
	c.baseBackup("standby", true)
	primary, conn := c.server, c.conn
	c.start("standby")
	c.caughtUp(conn)
	standby := c.server
	c.server, c.conn, c.url = primary, conn, primary.URL()

	exec(t, conn, "GRANT pg_read_all_stats TO hubstate_relay")
	stop := startRelay(t, c.url, c.brokers, "--standby", "standby")
	report(t, conn, event{device: "d1", sequence: 3})
	published(t, conn)
	if err := standby.Pause(); err != nil {
		t.Fatal(err)
	}
	report(t, conn, event{device: "d1", sequence: 4})
	time.Sleep(time.Second) // a relay that does not wait takes milliseconds
	if n := waiting(t, conn); n != 1 {
		t.Errorf("%d rows wait for the standby, want 1", n)
	}
	if err := standby.Resume(); err != nil {
		t.Fatal(err)
	}
	published(t, conn)
	stop()
	if v := epochs(t, consume(t, c.brokers, testenv.Settings().Topic, 6)["d1"]); v != "1/1 baseline, 1/2 apply, 1/3 apply, 1/4 apply" {
		t.Errorf("d1: %s", v)
	}
}

// A name that no standby has holds everything back, and a stop is still a stop.
func TestRelay_WaitsForAStandbyThatIsNotThere_O2(t *testing.T) {
	t.Parallel()
	url, brokers := testenv.Postgres(t), testenv.FakeKafka(t).ListenAddrs()
	stop := startRelay(t, url, brokers, "--standby", "nobody")
	conn := connect(t, url)
	report(t, conn, event{device: "d1", sequence: 1})
	time.Sleep(time.Second)
	if n := waiting(t, conn); n != 1 {
		t.Errorf("%d rows wait, want 1", n)
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the stop took %s", took)
	}
}
