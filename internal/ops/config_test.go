package ops

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type common struct {
	DatabaseURL string   `koanf:"database_url" help:"PostgreSQL"`
	Brokers     []string `koanf:"kafka_brokers" help:"Kafka brokers"`
}

type session struct {
	Filter string        `koanf:"filter"`
	Wait   time.Duration `koanf:"wait"`
}

type sample struct {
	common   `koanf:",squash"`
	Batch    int           `koanf:"batch" help:"rows a batch"`
	Wait     time.Duration `koanf:"wait" help:"how long"`
	Strict   bool          `koanf:"strict" help:"be strict"`
	Token    string        `koanf:"token" help:"page token" secret:"true"`
	Sessions []session     `koanf:"sessions"`
}

func defaults() sample {
	return sample{common: common{Brokers: []string{"a:1"}}, Batch: 500, Wait: time.Second}
}

func environ(kv ...string) func() []string { return func() []string { return kv } }

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hubstate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad_FlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "batch: 1\nwait: 1m\nstrict: true\ndatabase_url: postgres://file/\nsessions:\n- {filter: a/#, wait: 3s}\n")
	cfg := defaults()
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(fs, &cfg)
	if err := fs.Parse([]string{"--config", path, "--batch=3"}); err != nil {
		t.Fatal(err)
	}
	err := load(fs, &cfg, environ("HUBSTATE_BATCH=2", "HUBSTATE_WAIT=2m", "HUBSTATE_STRICT=", "HUBSTATE_KAFKA_BROKERS=b:1, c:2", "HUBSTATE_TEST_X=1"))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case cfg.Batch != 3, cfg.Wait != 2*time.Minute, !cfg.Strict, cfg.DatabaseURL != "postgres://file/":
		t.Fatalf("wrong precedence: %+v", cfg)
	case strings.Join(cfg.Brokers, "|") != "b:1|c:2":
		t.Fatalf("brokers = %q", cfg.Brokers)
	case len(cfg.Sessions) != 1 || cfg.Sessions[0].Wait != 3*time.Second:
		t.Fatalf("sessions = %+v", cfg.Sessions)
	}
}

func TestLoad_KeepsDefaultsWithoutAnySource(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	if err := load(nil, &cfg, environ()); err != nil {
		t.Fatal(err)
	}
	if cfg.Batch != 500 || cfg.Wait != time.Second || len(cfg.Brokers) != 1 {
		t.Fatalf("defaults lost: %+v", cfg)
	}
}

func TestLoad_NamesEveryProblemAtOnceAndNoValue(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "batchsize: 1\nwait: 30\nsessions:\n- {filtr: x}\n")
	cfg := defaults()
	err := load(nil, &cfg, environ("HUBSTATE_CONFIG="+path, "HUBSTATE_BATCH=many-s3cret", "HUBSTATE_SESSIONS=[]"))
	if err == nil {
		t.Fatal("accepted")
	}
	text := err.Error()
	for _, want := range []string{
		"5 problems", "sessions[0].filtr: unknown key", "batchsize: unknown key", "batch (from HUBSTATE_BATCH)", "wait (from " + path, "needs a unit",
		"HUBSTATE_SESSIONS: sessions has structure",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("message lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "s3cret") {
		t.Errorf("value shown:\n%s", text)
	}
}

func TestLoad_SaysWhichFileCannotBeRead(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	for _, path := range []string{"/nonexistent/x.yaml", writeFile(t, "a: [")} {
		err := load(nil, &cfg, environ("HUBSTATE_CONFIG="+path))
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestWriteConfig_IsReadableByLoadAndHidesSecrets(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.DatabaseURL, cfg.Token = "postgres://u:geheim@h/db", "t0ken"
	cfg.Sessions = []session{{Filter: "a/#", Wait: time.Minute}}
	var out bytes.Buffer
	if err := WriteConfig(&out, &cfg); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "geheim") || strings.Contains(out.String(), "t0ken") {
		t.Fatalf("secret shown:\n%s", out.String())
	}
	again := sample{}
	if err := load(nil, &again, environ("HUBSTATE_CONFIG="+writeFile(t, out.String()))); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if again.Batch != 500 || again.Wait != time.Second || len(again.Sessions) != 1 || again.Sessions[0].Wait != time.Minute {
		t.Fatalf("not the same: %+v", again)
	}
}

func TestAddFlags_HidesSecretsOfDefaults(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.DatabaseURL = "postgres://u:geheim@h/db"
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	AddFlags(fs, &cfg)
	if usage := fs.FlagUsages(); strings.Contains(usage, "geheim") || !strings.Contains(usage, "HUBSTATE_DATABASE_URL") {
		t.Fatal(usage)
	}
}

func TestProblems_NameFieldValueAndLimitInOneMessage(t *testing.T) {
	t.Parallel()
	var p Problems
	Between(&p, "batch", 0, 1, 10)
	p.Require("mqtt_url", " ")
	p.URL("redis_url", "redis://u:geheim@", "redis", "rediss")
	p.HostPort("admin_addr", "9100")
	p.OneOf("format", "xml", "json", "text")
	p.Positive("lease", -time.Second)
	var inner Problems
	inner.Add("window", 5, "must be even")
	p.Merge("relay.", inner.Err())
	p.Merge("monitor.", errors.Join(errors.New("a = 1: too small"), errors.New("b = 2: too large")))
	text := p.Err().Error()
	for _, want := range []string{"9 problems", "monitor.b = 2: too large", "batch = 0: must be between 1 and 10", `mqtt_url = " "`, "redis_url", `admin_addr = "9100"`,
		"json, text", "lease = -1s", "relay.window = 5: must be even"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "geheim") {
		t.Errorf("secret shown:\n%s", text)
	}
	if (&Problems{}).Err() != nil {
		t.Error("no problems must be nil")
	}
}

func TestMask_HidesPasswordsAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"postgres://u:geheim@h:5432/db?sslmode=disable": "postgres://u:xxxxx@h:5432/db?sslmode=disable",
		"postgres://u:ge@he/im#x@h/db":                  "postgres://u:xxxxx@h/db",
		"postgres://u:12/geheim@h/db":                   "postgres://u:xxxxx@h/db",
		"redis://:geheim@h/0,redis://:geheim@h2/0":      "redis://:xxxxx@h/0,redis://:xxxxx@h2/0",
		"mqtts://u:ge,heim@h":                           "mqtts://u:xxxxx@h",
		"host=h user=u password='ge heim' dbname=d":     "host=h user=u password=xxxxx dbname=d",
		"postgres://h/db?password=geheim&x=1":           "postgres://h/db?password=xxxxx&x=1",
		"dial mqtt://u:geheim@h:1: refused":             "dial mqtt://u:xxxxx@h:1: refused",
		"redis://127.0.0.1:6379/0":                      "redis://127.0.0.1:6379/0",
		"127.0.0.1:9092,127.0.0.1:9093":                 "127.0.0.1:9092,127.0.0.1:9093",
	} {
		if got := Mask(in); got != want {
			t.Errorf("Mask(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("u", "geheim")
	f.Fuzz(func(t *testing.T, user, password string) {
		if len(password) < 6 || strings.ContainsAny(password, " \t\n\r\v\f") || strings.Contains(password, "://") ||
			strings.ContainsAny(user, ":/?#@ \t\n\r\v\f") || strings.Contains(user, password) || strings.Contains("postgres://:xxxxx@host/db", password) {
			t.Skip()
		}
		if got := Mask("postgres://" + user + ":" + password + "@host/db"); strings.Contains(got, password) {
			t.Fatalf("password shown: %q", got)
		}
	})
}
