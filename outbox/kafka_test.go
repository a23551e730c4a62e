package outbox

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestKafkaConfig_NamesEveryProblemAndNoSecret(t *testing.T) {
	t.Parallel()
	err := KafkaConfig{
		Brokers: []string{"one:9092", "two"}, SASLMechanism: "GSSAPI", Password: "hunter2", PasswordFile: "p", CertFile: "c.pem",
		Compression: "brotli", DialTimeout: time.Hour,
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`kafka_brokers "two"`, `kafka_sasl_mechanism "GSSAPI"`, "kafka_username", "exactly one", "kafka_key_file",
		`kafka_compression "brotli"`, "kafka_dial_timeout 1h0m0s",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("the password is in the error")
	}
	if err := (KafkaConfig{}).Validate(); err == nil || !strings.Contains(err.Error(), "kafka_brokers") {
		t.Errorf("no brokers: %v", err)
	}
	if err := (KafkaConfig{Brokers: []string{"b:1"}, Password: "x"}).Validate(); err == nil {
		t.Error("a password without a user passes")
	}
}

func TestKafkaConfig_FilesThatCannotBeReadFailAtStart(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none")
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]KafkaConfig{
		"kafka_password_file": {Username: "u", PasswordFile: missing},
		"kafka_ca_file":       {CAFile: missing},
		"no certificate":      {CAFile: notPEM},
		"kafka_cert_file":     {CertFile: missing, KeyFile: missing},
	} {
		c.Brokers = []string{"127.0.0.1:1"}
		if _, err := c.Options(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKafkaConfig_LogsInByEveryMechanism talks to brokers that refuse everybody else; the password lies in a file.
func TestKafkaConfig_LogsInByEveryMechanism(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{mechanismPlain, mechanismScram256, mechanismScram512} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			cluster := testenv.FakeKafka(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "relay", "s3cret"), kfake.SeedTopics(1, "t"))
			good := KafkaConfig{Brokers: cluster.ListenAddrs(), SASLMechanism: mechanism, Username: "relay", PasswordFile: file}
			if err := produceOne(t, good); err != nil {
				t.Errorf("right password: %v", err)
			}
			bad := KafkaConfig{Brokers: cluster.ListenAddrs(), SASLMechanism: mechanism, Username: "relay", Password: "wrong"}
			if v := Classify(produceOne(t, bad)); v.Kind != Outage {
				t.Errorf("wrong password: %+v", v)
			}
		})
	}
}

// TestKafkaConfig_TLSTrustsOnlyItsAuthority_O6: a certificate nobody trusts is an outage with a name, not a lost row.
func TestKafkaConfig_TLSTrustsOnlyItsAuthority_O6(t *testing.T) {
	t.Parallel()
	ca, server := certificate(t)
	cluster := testenv.FakeKafka(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{server}}), kfake.SeedTopics(1, "t"))
	if err := produceOne(t, KafkaConfig{Brokers: cluster.ListenAddrs(), CAFile: ca}); err != nil {
		t.Errorf("trusted: %v", err)
	}
	v := Classify(produceOne(t, KafkaConfig{Brokers: cluster.ListenAddrs(), TLS: true}))
	if v.Kind != Outage || v.Code != "TLS" {
		t.Errorf("not trusted: %+v", v)
	}
	if v := Classify(produceOne(t, KafkaConfig{Brokers: cluster.ListenAddrs()})); v.Kind != Outage {
		t.Errorf("plain text to a TLS broker: %+v", v)
	}
}

// TestClassify_RealErrorsOfABrokerThatIsAway_O6 asks the operating system for errors instead of making them up.
func TestClassify_RealErrorsOfABrokerThatIsAway_O6(t *testing.T) {
	t.Parallel()
	address := testenv.FreeAddr(t)
	for name, broker := range map[string]string{"refused": address, "no such host": "nobody.invalid:9092"} {
		if v := Classify(produceOne(t, KafkaConfig{Brokers: []string{broker}})); v.Kind != Outage {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// produceOne sends one record to partition 0 of topic t and returns what became of it. Login and TLS errors fail the
// request, a produce would only wait; so a request that needs the same connection is sent first.
func produceOne(t *testing.T, c KafkaConfig) error {
	t.Helper()
	opts, err := c.Options()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(append(opts, kgo.RequestRetries(1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	return client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr()
}

// certificate makes a self-signed certificate for 127.0.0.1 and the file of its authority.
func certificate(t *testing.T) (caFile string, pair tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(caFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return caFile, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestEnsureTopic_RefusesAnotherPartitionCount_O2(t *testing.T) {
	t.Parallel()
	cluster := testenv.FakeKafka(t, kfake.SeedTopics(10, "device-state"))
	_, err := EnsureTopic(t.Context(), kafkaClient(t, cluster.ListenAddrs()), TopicSpec{Name: "device-state", Partitions: 64})
	var wrong *PartitionCountError
	if !errors.As(err, &wrong) || wrong.Have != 10 || wrong.Want != 64 {
		t.Fatalf("error %v", err)
	}
}

func TestEnsureTopic_MustExistMakesNothing(t *testing.T) {
	t.Parallel()
	client := kafkaClient(t, testenv.FakeKafka(t).ListenAddrs())
	spec := TopicSpec{Name: "device-state", Partitions: 64, MustExist: true}
	for range 2 {
		if _, err := EnsureTopic(t.Context(), client, spec); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Fatalf("error %v", err)
		}
	}
}

func kafkaClient(t *testing.T, brokers []string) *kgo.Client {
	t.Helper()
	opts, err := KafkaConfig{Brokers: brokers}.Options()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
