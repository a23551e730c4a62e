package ingest

import (
	"net/url"
	"strings"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/hubstate/hubstate/internal/faultnet"
	"github.com/hubstate/hubstate/internal/testenv"
)

// proxied puts a proxy in front of a server and returns it with the URL that leads through it.
func proxied(t testing.TB, target string) (*faultnet.Proxy, string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p, err := faultnet.New(t.Context(), u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, strings.Replace(target, u.Host, p.Addr(), 1)
}

// forgetSession makes the broker forget what it kept for a client id.
func forgetSession(t testing.TB, broker, clientID string) {
	t.Helper()
	c := mqtt.NewClient(mqtt.NewClientOptions().AddBroker(strings.Replace(broker, "mqtt://", "tcp://", 1)).SetClientID(clientID).SetCleanSession(true))
	if token := c.Connect(); !token.WaitTimeout(10*time.Second) || token.Error() != nil {
		t.Fatalf("clean session: %v", token.Error())
	}
	c.Disconnect(50)
}

// The broker forgot the session, answers CONNECT with a new one, and the link breaks before SUBSCRIBE: the next CONNACK says
// that a session is present, and it has no subscription.
func TestSession_NewSessionIsSubscribedThoughTheLinkBrokeAfterItsConnack_N1(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	proxy, through := proxied(t, broker)
	alone := func(c *Config) { c.IgnoreDrops = true } // no other connection shares the proxy's bytes
	first := startRig(t, url, through, alone)
	first.waitReady()
	first.stop()
	forgetSession(t, broker, name(t))

	proxy.CutAfter(faultnet.Up, int64(14+len(name(t))+5)) // the CONNECT passes, the SUBSCRIBE does not
	second := startRig(t, url, through, alone)
	second.count(1, `SELECT count(*) FROM possible_gap WHERE cause = 'session_lost'`)
	proxy.Heal()
	second.waitReady()
	publishAll(t, device(t, broker, name(t)+"-device"), "hubs/"+name(t)+"/devices/d/state", 1, seqs(1, 5)...)
	second.count(5, `SELECT applied FROM ingest_lane`)
	second.count(1, `SELECT count(*) FROM possible_gap`)
}

// A session that the broker forgot is recorded with its window, also when the filters change in the same deployment.
func TestSession_LostSessionIsAPossibleGapAlsoWhenFiltersChange(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	first := startRig(t, url, broker)
	first.waitReady()
	first.stop()
	forgetSession(t, broker, name(t))
	second := startRig(t, url, broker, func(c *Config) {
		c.Sessions[0].Filters = append(c.Sessions[0].Filters, "hubs/"+name(t)+"-2/devices/+/+")
	})
	second.waitReady()
	second.count(1, `SELECT count(*) FROM possible_gap WHERE cause = 'session_lost' AND to_at <= clock_timestamp()`)
	publishAll(t, device(t, broker, name(t)+"-device"), "hubs/"+name(t)+"-2/devices/d/state", 1, seqs(1, 5)...)
	second.count(5, `SELECT applied FROM ingest_lane`)
}

// Filters that are no longer wanted are taken back; the session and its backlog stay.
func TestSession_ChangedFiltersReplaceTheOldOnes(t *testing.T) {
	t.Parallel()
	broker, url := testenv.MQTT(t), testenv.Postgres(t)
	first := startRig(t, url, broker)
	first.waitReady()
	first.stop()
	c := device(t, broker, name(t)+"-device")
	second := startRig(t, url, broker, func(c *Config) { c.Sessions[0].Filters = []string{"hubs/" + name(t) + "-new/devices/+/+"} })
	second.waitReady()
	publishAll(t, c, "hubs/"+name(t)+"/devices/d/state", 1, seqs(1, 5)...)
	publishAll(t, c, "hubs/"+name(t)+"-new/devices/d/state", 1, seqs(1, 7)...)
	second.count(7, `SELECT applied FROM ingest_lane`)
	second.count(0, `SELECT count(*) FROM possible_gap`)
}
