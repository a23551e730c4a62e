package main

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

	"github.com/hubstate/hubstate/internal/ops"
)

// kafkaLogin is how to be let in by the brokers; the keys are the relay's. Secrets are better given as files: those are
// read at each login, so a rotated one is taken without a restart.
type kafkaLogin struct {
	Mechanism    string `koanf:"kafka_sasl_mechanism" help:"PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; empty with a username means the last"`
	Username     string `koanf:"kafka_username" help:"user of the Kafka login"`
	Password     string `koanf:"kafka_password" help:"password of the Kafka login; better in kafka_password_file" secret:"true"`
	PasswordFile string `koanf:"kafka_password_file" help:"file with the password, read at each login"`
	TLS          bool   `koanf:"kafka_tls" help:"encrypt the connections to Kafka"`
	CAFile       string `koanf:"kafka_ca_file" help:"PEM of the authorities to trust; implies kafka_tls"`
	CertFile     string `koanf:"kafka_cert_file" help:"PEM of the client's certificate; implies kafka_tls"`
	KeyFile      string `koanf:"kafka_key_file" help:"PEM of the certificate's key"`
	ServerName   string `koanf:"kafka_server_name" help:"name expected in the brokers' certificates"`
}

const (
	mechanismPlain    = "PLAIN"
	mechanismScram256 = "SCRAM-SHA-256"
	mechanismScram512 = "SCRAM-SHA-512"

	kafkaDialTimeout = 5 * time.Second
)

func (k kafkaLogin) mechanismName() string {
	if k.Mechanism == "" && k.Username != "" {
		return mechanismScram512
	}
	return strings.ToUpper(k.Mechanism)
}

func (k kafkaLogin) encrypted() bool {
	return k.TLS || k.CAFile != "" || k.CertFile != "" || k.KeyFile != "" || k.ServerName != ""
}

// validate reads no file.
func (k kafkaLogin) validate(p *ops.Problems) {
	name := k.mechanismName()
	switch {
	case name == "" && (k.Password != "" || k.PasswordFile != ""):
		p.Addf("kafka_username: must be set with a password")
	case name != "":
		if !slices.Contains([]string{mechanismPlain, mechanismScram256, mechanismScram512}, name) {
			p.Add("kafka_sasl_mechanism", k.Mechanism, "must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
		}
		p.Require("kafka_username", k.Username)
		if (k.Password == "") == (k.PasswordFile == "") {
			p.Addf("kafka_password and kafka_password_file: exactly one must be set for a login")
		}
	}
	if (k.CertFile == "") != (k.KeyFile == "") {
		p.Addf("kafka_cert_file and kafka_key_file: must be set together")
	}
}

// options fails when a file cannot be read now.
func (k kafkaLogin) options() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.DialTimeout(kafkaDialTimeout)}
	if k.mechanismName() != "" {
		if _, err := k.password(); err != nil {
			return nil, err
		}
		opts = append(opts, kgo.SASL(k.sasl()))
	}
	if !k.encrypted() {
		return opts, nil
	}
	if _, err := k.tls(); err != nil {
		return nil, err
	}
	return append(opts, kgo.Dialer(k.dial)), nil
}

func (k kafkaLogin) password() (string, error) {
	if k.PasswordFile == "" {
		return k.Password, nil
	}
	text, err := os.ReadFile(k.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("kafka_password_file: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func (k kafkaLogin) sasl() sasl.Mechanism {
	secret := func(context.Context) (scram.Auth, error) {
		password, err := k.password()
		return scram.Auth{User: k.Username, Pass: password}, err
	}
	switch k.mechanismName() {
	case mechanismPlain:
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			auth, err := secret(ctx)
			return plain.Auth{User: auth.User, Pass: auth.Pass}, err
		})
	case mechanismScram256:
		return scram.Sha256(secret)
	}
	return scram.Sha512(secret)
}

// dial reads the files at each connection: a certificate that was renewed is taken without a restart.
func (k kafkaLogin) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	cfg, err := k.tls()
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: kafkaDialTimeout}, Config: cfg}
	return d.DialContext(ctx, network, addr)
}

func (k kafkaLogin) tls() (*tls.Config, error) {
	cfg := &tls.Config{ServerName: k.ServerName, MinVersion: tls.VersionTLS12}
	if k.CAFile != "" {
		pem, err := os.ReadFile(k.CAFile)
		if err != nil {
			return nil, fmt.Errorf("kafka_ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("kafka_ca_file: holds no certificate")
		}
	}
	if k.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(k.CertFile, k.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("kafka_cert_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
