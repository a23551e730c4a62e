package lint

import (
	"fmt"
	"slices"
	"strings"
)

// border says which packages may know a foreign library. Directories include what lies below them.
type border struct {
	library string // import path prefix
	dirs    []string
}

// borders lists every foreign library of the module. Tests are free, except those of the domain.
func borders() []border {
	fakes := []string{"internal/embedded", "internal/testenv"}
	kafka := append([]string{"outbox", "devicestate/consumer", "internal/monitor", "cmd", "loadtest"}, fakes...)
	redis := append([]string{"devicestate/consumer", "internal/monitor", "cmd/monitor", "cmd/hub", "loadtest"}, fakes...)
	return []border{
		{"github.com/twmb/franz-go/pkg/kfake", fakes},
		{"github.com/mochi-mqtt/server", fakes},
		{"github.com/dgraph-io/badger", fakes},
		{"github.com/alicebob/miniredis", fakes},
		{"github.com/testcontainers/testcontainers-go", []string{"internal/testenv"}},

		{"github.com/eclipse/paho.mqtt.golang", append([]string{"ingest", "loadtest", "cmd/hub"}, fakes...)},
		{"github.com/twmb/franz-go", kafka},
		{"github.com/redis/go-redis", redis},
		{"github.com/jackc/pgx", []string{"outbox", "ingest", "partitions", "devicestate/consumer", "internal", "cmd", "loadtest"}},
		{"github.com/jackc/pglogrepl", []string{"outbox"}},
		{"github.com/parquet-go/parquet-go", []string{"partitions"}},
		{"github.com/cespare/xxhash", []string{"ingest"}},
		{"github.com/google/uuid", []string{"ingest", "outbox", "cmd", "loadtest", "internal"}},
		{"github.com/cenkalti/backoff", []string{"outbox", "ingest", "internal"}},

		{"github.com/knadh/koanf", []string{"internal/ops"}},
		{"github.com/go-viper/mapstructure", []string{"internal/ops"}},
		{"github.com/spf13", []string{"internal/ops", "cmd", "loadtest"}},
		{"github.com/pressly/goose", []string{"internal/schema"}},
		{"github.com/prometheus", []string{"outbox", "ingest", "partitions", "devicestate/consumer", "internal", "cmd", "loadtest"}},
		{"go.yaml.in/yaml", []string{"ingest", "cmd", "loadtest", "internal"}},
		{"golang.org/x/sync", []string{"outbox", "ingest", "partitions", "devicestate/consumer", "internal", "cmd", "loadtest"}},
		{"golang.org/x/sys", []string{"internal/embedded", "internal/faultnet", "loadtest"}},
		{"golang.org/x/term", []string{"cmd", "loadtest"}},

		{"github.com/HdrHistogram/hdrhistogram-go", []string{"loadtest", "cmd/hub"}},
		{"github.com/compose-spec/compose-go", []string{"internal/lint"}},
		{"github.com/grafana/grafana-foundation-sdk", []string{"deploy/grafana", "internal/monitor"}},
		{"github.com/ThreeDotsLabs", []string{"loadtest/peers/watermill"}}, // a peer, in a module of its own
		{"github.com/IBM/sarama", []string{"loadtest/peers/watermill"}},
		{"github.com/chromedp", nil},
		{"pgregory.net/rapid", nil},
	}
}

func checkOutside(t *Tree) []Violation {
	return t.eachCode("outside", func(f *File) []Violation {
		var vs []Violation
		for _, spec := range f.AST.Imports {
			if msg := crosses(f.Dir(), importPath(spec)); msg != "" {
				vs = append(vs, Violation{Line: t.Line(spec.Pos()), Message: msg})
			}
		}
		return vs
	})
}

// crosses explains why dir must not import lib, or returns "".
func crosses(dir, lib string) string {
	first, _, _ := strings.Cut(lib, "/")
	if !strings.Contains(first, ".") || within(lib, Module) {
		return "" // standard library, or ours
	}
	if dir == "devicestate" {
		return fmt.Sprintf("devicestate uses the standard library only, not %s", lib)
	}
	all := borders()
	i := slices.IndexFunc(all, func(b border) bool { return within(lib, b.library) })
	if i < 0 {
		return fmt.Sprintf("%s has no border in internal/lint/outside.go", lib)
	}
	if !slices.ContainsFunc(all[i].dirs, func(d string) bool { return within(dir, d) }) {
		return fmt.Sprintf("%s must not know %s", dir, lib)
	}
	return ""
}

// within reports whether path is prefix or lies below it.
func within(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
