package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/hubstate/hubstate/internal/ops"
	"github.com/hubstate/hubstate/internal/testenv"
)

// certificate makes one for 127.0.0.1 and writes its PEM, which is its own authority.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafka"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

func TestKafkaLogin_IsLetInWithTLSAndEachMechanismAndNotWithAWrongPassword(t *testing.T) {
	t.Parallel()
	cert, ca := certificate(t)
	passwordFile := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(passwordFile, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kafka := testenv.FakeKafka(t, kfake.EnableSASL(), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}),
		kfake.Superuser(mechanismPlain, "p", "geheim"), kfake.Superuser(mechanismScram256, "s2", "geheim"), kfake.Superuser(mechanismScram512, "s5", "geheim"))
	for name, c := range map[string]struct {
		login kafkaLogin
		ok    bool
	}{
		"plain":          {kafkaLogin{Mechanism: "plain", Username: "p", Password: "geheim", CAFile: ca}, true},
		"scram 256":      {kafkaLogin{Mechanism: mechanismScram256, Username: "s2", PasswordFile: passwordFile, CAFile: ca}, true},
		"scram 512":      {kafkaLogin{Username: "s5", PasswordFile: passwordFile, CAFile: ca}, true},
		"wrong password": {kafkaLogin{Username: "s5", Password: "falsch", CAFile: ca}, false},
		"no TLS":         {kafkaLogin{Username: "s5", Password: "geheim"}, false},
		"not our CA":     {kafkaLogin{Username: "s5", Password: "geheim", TLS: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, err := c.login.options()
			if err != nil {
				t.Fatal(err)
			}
			client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(kafka.ListenAddrs()...))...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if !c.ok { // a refusal comes at once, but the client tries again until it is told to stop
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
			}
			if _, err := kadm.NewClient(client).BrokerMetadata(ctx); (err == nil) != c.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestKafkaLogin_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	var p ops.Problems
	kafkaLogin{Mechanism: "KERBEROS", Password: "geheim", PasswordFile: "x", CertFile: "c"}.validate(&p)
	kafkaLogin{Password: "geheim"}.validate(&p)
	text := p.Err().Error()
	for _, want := range []string{"5 problems", `kafka_sasl_mechanism = "KERBEROS"`, "kafka_username", "exactly one", "kafka_cert_file and kafka_key_file"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "geheim") {
		t.Errorf("secret shown: %s", text)
	}
	for _, k := range []kafkaLogin{{Username: "u", PasswordFile: "/nonexistent"}, {CAFile: "/nonexistent"}, {CertFile: "/nonexistent", KeyFile: "/nonexistent"}} {
		if _, err := k.options(); err == nil || !strings.Contains(err.Error(), "_file: ") {
			t.Errorf("%+v: %v", k, err)
		}
	}
}
