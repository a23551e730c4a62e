package ingest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

const (
	dialTimeout    = 10 * time.Second
	connectTimeout = 20 * time.Second
	keepAlive      = 30 * time.Second

	// A PINGRESP comes behind everything that the broker has for us: megabytes in the buffers of both sockets, while the
	// reader waits for room in the queue. Ten seconds were too few for a lane that its database holds up, and the
	// reconnect had everything delivered again.
	pingPatience = 30 * time.Second
)

// dial opens the network connection of one attempt: TCP, TLS or WebSocket. Files are read each time, so that renewed
// certificates and passwords are taken up by the next connection.
func (s SessionConfig) dial(ctx context.Context) (net.Conn, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, errors.New("parse mqtt_url") // the cause would show the password
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	switch u.Scheme {
	case "mqtt", "tcp":
		return dialer.DialContext(ctx, "tcp", withPort(u, "1883"))
	case "mqtts", "ssl":
		config, err := s.tls(u.Hostname())
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", withPort(u, "8883"))
	case "ws", "wss":
		config, err := s.tls(u.Hostname())
		if err != nil {
			return nil, err
		}
		u.User = nil
		return mqtt.NewWebsocket(u.String(), config, dialTimeout, nil, nil)
	}
	return nil, fmt.Errorf("mqtt_url has scheme %q", u.Scheme)
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (s SessionConfig) tls(host string) (*tls.Config, error) {
	config := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		pem, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read mqtt_ca_file: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("mqtt_ca_file %s holds no certificate", s.CAFile)
		}
	}
	if s.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load mqtt_cert_file and mqtt_key_file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// credentials are those of the URL, else the configured ones; a password file wins over a password.
func (s SessionConfig) credentials() (user, password string, err error) {
	user, password = s.User, s.Password
	if s.PasswordFile != "" {
		text, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return "", "", fmt.Errorf("read mqtt_password_file: %w", err)
		}
		password = strings.TrimRight(string(text), "\r\n")
	}
	if u, err := url.Parse(s.URL); err == nil && u.User != nil {
		user = u.User.Username()
		if p, ok := u.User.Password(); ok {
			password = p
		}
	}
	return user, password, nil
}

// clientOptions are the library's settings that every connection of ours shares. The library reconnects nothing by
// itself and keeps nothing: a client lives for one connection.
func (s SessionConfig) clientOptions(clientID string) (*mqtt.ClientOptions, error) {
	user, password, err := s.credentials()
	if err != nil {
		return nil, err
	}
	opts := mqtt.NewClientOptions().
		AddBroker("tcp://unused:1883"). // the connection is opened by our own function
		SetClientID(clientID).SetUsername(user).SetPassword(password).
		SetProtocolVersion(4).SetAutoReconnect(false).SetConnectRetry(false).
		SetOrderMatters(true).SetAutoAckDisabled(true).
		SetKeepAlive(keepAlive).SetPingTimeout(pingPatience).SetConnectTimeout(connectTimeout).SetWriteTimeout(ackTimeout).
		SetStore(forgetful{})
	return opts, nil
}
