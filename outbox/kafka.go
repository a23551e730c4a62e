package outbox

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// KafkaConfig is how to reach the brokers. Secrets are better given as files: those are read at each login, so a rotated
// one is taken without a restart.
type KafkaConfig struct {
	Brokers  []string // host:port of at least one living broker; required
	ClientID string   // name in the brokers' logs and quotas; default "hubstate-relay"

	SASLMechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; default SCRAM-SHA-512 when Username is set, else no login
	Username      string
	Password      string // at most one of Password and PasswordFile
	PasswordFile  string // a final line break is not part of the password

	TLS        bool   // encrypt; default true when one of the next is set, else false
	CAFile     string // PEM of the authorities to trust; default: those of the machine
	CertFile   string // PEM of the client's certificate; with KeyFile
	KeyFile    string
	ServerName string // expected in the brokers' certificates; default: the host that was dialled

	Compression string        // snappy, lz4, zstd, gzip or none; default snappy (measured fastest here)
	DialTimeout time.Duration // for TCP and TLS; 100ms..1m; default 5s
}

const (
	mechanismPlain    = "PLAIN"
	mechanismScram256 = "SCRAM-SHA-256"
	mechanismScram512 = "SCRAM-SHA-512"
)

func (c KafkaConfig) withDefaults() KafkaConfig {
	c.ClientID = or(c.ClientID, "hubstate-relay")
	if c.SASLMechanism == "" && c.Username != "" {
		c.SASLMechanism = mechanismScram512
	}
	c.SASLMechanism = strings.ToUpper(c.SASLMechanism)
	c.TLS = c.TLS || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" || c.ServerName != ""
	c.Compression = or(c.Compression, "snappy")
	c.DialTimeout = or(c.DialTimeout, 5*time.Second)
	return c
}

// Validate returns all problems joined, each naming field and value, never a secret. It reads no file.
func (c KafkaConfig) Validate() error {
	c = c.withDefaults()
	return errors.Join(c.validateBrokers(), c.validateLogin(), c.validateTLS(), c.validateRest())
}

func (c KafkaConfig) validateBrokers() error {
	if len(c.Brokers) == 0 {
		return errors.New("kafka_brokers: must name at least one broker")
	}
	var errs []error
	for _, b := range c.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("kafka_brokers %q: must be host:port", b))
		}
	}
	return errors.Join(errs...)
}

func (c KafkaConfig) validateLogin() error {
	if c.SASLMechanism == "" {
		if c.Password != "" || c.PasswordFile != "" {
			return errors.New("kafka_username: must be set with a password")
		}
		return nil
	}
	var errs []error
	if !slices.Contains([]string{mechanismPlain, mechanismScram256, mechanismScram512}, c.SASLMechanism) {
		errs = append(errs, fmt.Errorf("kafka_sasl_mechanism %q: must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512", c.SASLMechanism))
	}
	if c.Username == "" {
		errs = append(errs, fmt.Errorf("kafka_username: must be set for %s", c.SASLMechanism))
	}
	if (c.Password == "") == (c.PasswordFile == "") {
		errs = append(errs, errors.New("kafka_password and kafka_password_file: exactly one must be set for a login"))
	}
	return errors.Join(errs...)
}

func (c KafkaConfig) validateTLS() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("kafka_cert_file and kafka_key_file: must be set together")
	}
	return nil
}

func (c KafkaConfig) validateRest() error {
	var errs []error
	if _, ok := codec(c.Compression); !ok {
		errs = append(errs, fmt.Errorf("kafka_compression %q: must be snappy, lz4, zstd, gzip or none", c.Compression))
	}
	if c.DialTimeout < 100*time.Millisecond || c.DialTimeout > time.Minute {
		errs = append(errs, fmt.Errorf("kafka_dial_timeout %s: must be 100ms..1m", c.DialTimeout))
	}
	return errors.Join(errs...)
}

// Options turns the configuration into options of a client: brokers, login, encryption, compression, time-outs. What
// makes a producer safe (acks, idempotence, batches) is the relay's and not here. It fails when c is not valid or a
// file cannot be read now.
func (c KafkaConfig) Options() ([]kgo.Opt, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	compression, _ := codec(c.Compression)
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.ProducerBatchCompression(compression),
		kgo.DialTimeout(c.DialTimeout),
		// A leader that moved must be found in a fraction of a second, not in the default 5.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(30 * time.Second),
	}
	if c.SASLMechanism != "" {
		if _, err := c.password(); err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(c.mechanism()))
	}
	if !c.TLS {
		return opts, nil
	}
	encryption, err := c.tlsConfig()
	if err != nil {
		return nil, err
	}
	return append(opts, kgo.DialTLSConfig(encryption)), nil
}

func codec(name string) (kgo.CompressionCodec, bool) {
	switch strings.ToLower(name) {
	case "snappy":
		return kgo.SnappyCompression(), true
	case "lz4":
		return kgo.Lz4Compression(), true
	case "zstd":
		return kgo.ZstdCompression(), true
	case "gzip":
		return kgo.GzipCompression(), true
	case "none":
		return kgo.NoCompression(), true
	}
	return kgo.CompressionCodec{}, false
}

func (c KafkaConfig) mechanism() sasl.Mechanism {
	scrams := func(context.Context) (scram.Auth, error) {
		password, err := c.password()
		return scram.Auth{User: c.Username, Pass: password}, err
	}
	switch c.SASLMechanism {
	case mechanismScram256:
		return scram.Sha256(scrams)
	case mechanismScram512:
		return scram.Sha512(scrams)
	}
	return plain.Plain(func(context.Context) (plain.Auth, error) {
		password, err := c.password()
		return plain.Auth{User: c.Username, Pass: password}, err
	})
}

func (c KafkaConfig) password() (string, error) {
	if c.PasswordFile == "" {
		return c.Password, nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read kafka_password_file: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func (c KafkaConfig) tlsConfig() (*tls.Config, error) {
	encryption := &tls.Config{ServerName: c.ServerName, MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read kafka_ca_file: %w", err)
		}
		encryption.RootCAs = x509.NewCertPool()
		if !encryption.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("kafka_ca_file %q: holds no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile == "" {
		return encryption, nil
	}
	if _, err := c.certificate(nil); err != nil {
		return nil, err
	}
	encryption.GetClientCertificate = c.certificate
	return encryption, nil
}

// certificate is read at each handshake, so a renewed one needs no restart.
func (c KafkaConfig) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("load kafka_cert_file and kafka_key_file: %w", err)
	}
	return &pair, nil
}
