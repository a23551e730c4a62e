package ingest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
)

// certificates are an authority and what it signed, as PEM files.
type certificates struct{ ca, cert, key string }

func newCertificates(t *testing.T) certificates {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := certificates{ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{c.ca: {Type: "CERTIFICATE", Bytes: der}, c.cert: {Type: "CERTIFICATE", Bytes: der}, c.key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// tlsInFront ends TLS before the broker, and wants a certificate of the client's that the same authority signed.
func tlsInFront(t *testing.T, broker string, c certificates) string {
	t.Helper()
	u, err := url.Parse(broker)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(c.ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", u.Host)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
			go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
		}
	}()
	return "mqtts://" + l.Addr().String()
}

func TestTransport_TLSWithClientCertificateAndPasswordFile(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	c := newCertificates(t)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	secure := tlsInFront(t, broker, c)
	r := startRig(t, testenv.Postgres(t), secure, func(cfg *Config) {
		cfg.MQTTCAFile, cfg.MQTTCertFile, cfg.MQTTKeyFile, cfg.MQTTUser, cfg.MQTTPasswordFile = c.ca, c.cert, c.key, "someone", password
	})
	r.waitReady()
	publishAll(t, device(t, broker, name(t)+"-device"), "hubs/"+name(t)+"/devices/d/state", 1, seqs(1, 50)...)
	r.count(50, `SELECT applied FROM ingest_lane`)
	if user, pw, err := r.service.cfg.Sessions[0].credentials(); user != "someone" || pw != "secret" || err != nil {
		t.Errorf("credentials %s %s %v", user, pw, err)
	}
}

func TestTransport_AnUnknownAuthorityIsNamedAndNotReady(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	secure := tlsInFront(t, broker, newCertificates(t))
	r := startRig(t, testenv.Postgres(t), secure, func(cfg *Config) { cfg.MQTTCAFile = newCertificates(t).ca })
	eventually(t, waitLong, func() error {
		if err := r.service.Ready(); err == nil || !strings.Contains(err.Error(), "certificate") {
			return fmt.Errorf("ready says %w", err)
		}
		return nil
	})
}

func TestTransport_WebSocket(t *testing.T) {
	t.Parallel()
	addr := testenv.FreeAddr(t)
	broker := startBroker(t, fmt.Sprintf("listener %s 127.0.0.1\nprotocol websockets", strings.TrimPrefix(addr, "127.0.0.1:")))
	r := startRig(t, testenv.Postgres(t), "ws://"+addr+"/mqtt")
	r.waitReady()
	publishAll(t, device(t, broker.URL(), name(t)+"-device"), "hubs/"+name(t)+"/devices/d/state", 1, seqs(1, 500)...)
	r.count(500, `SELECT applied FROM ingest_lane`)
	r.count(0, `SELECT duplicate + late FROM ingest_lane`)
}

func TestSession_SharedSubscriptionIsReadByAllItsLanes(t *testing.T) {
	t.Parallel()
	broker := testenv.MQTT(t)
	r := startRig(t, testenv.Postgres(t), broker, func(c *Config) {
		filters := c.Sessions[0].Filters
		c.Sessions = []SessionConfig{{Lane: name(t) + "-a", Filters: filters, Share: name(t)}, {Lane: name(t) + "-b", Filters: filters, Share: name(t)}}
	})
	r.waitReady()
	c := device(t, broker, name(t)+"-device")
	for d := range 20 {
		publishAll(t, c, fmt.Sprintf("hubs/%s/devices/d%d/state", name(t), d), 1, seqs(1, 10)...)
	}
	r.count(200, `SELECT sum(applied + late + duplicate)::bigint FROM ingest_lane`)
	r.count(2, `SELECT count(*) FROM ingest_lane WHERE applied + late > 0`)
	r.count(20, `SELECT count(*) FROM device_state WHERE counter = 10`) // counters keep the order that the broker does not
}

func TestSession_RefusedAndDowngradedFiltersAreNamed(t *testing.T) {
	t.Parallel()
	wanted := map[string]byte{"a/#": 1, "b/+": 1, "c": 0, "d": 1}
	err := granted(map[string]byte{"a/#": 0x80, "b/+": 0, "c": 0}, wanted)
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"a/# (refused)", "b/+ (QoS 0 instead of 1)", "d (not answered)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), "c (") {
		t.Errorf("%q names a filter that was granted", err)
	}
	if err := granted(map[string]byte{"a/#": 1, "b/+": 1, "c": 0, "d": 1}, wanted); err != nil {
		t.Error(err)
	}
}

// 100,000 known devices cost the decoder a bounded table of topics and nothing else: states stay in the database.
func TestMemory_AHundredThousandDevicesAreNotKept_N3(t *testing.T) {
	s, err := New(Config{MQTTURL: "mqtt://unused:1"}, nil, newRegistry(), testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	d := newDecoder(s.matcher, s.cfg.Limits(), "h")
	g := newGeneration(1)
	before := heap()
	for i := range 300_000 {
		topic := fmt.Appendf(nil, "hubs/hub-1/devices/device-%06d/state", i%100_000)
		d.decode(g, publish{topic: topic, payload: []byte(`{"seq":1,"state":{}}`), size: 20, qos: 1}, time.Now())
	}
	grown := heap() - before
	t.Logf("heap grew by %d KB", grown>>10)
	if grown > 64<<20 {
		t.Errorf("heap grew by %d KB", grown>>10)
	}
	if len(d.routes) > maxRoutes {
		t.Errorf("%d routes", len(d.routes))
	}
}
