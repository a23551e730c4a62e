package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/outbox"
	"github.com/hubstate/hubstate/partitions"
)

// TestCLIJSON_EveryFieldIsDescribed: a field that docs/cli-json.md does not name is no contract.
func TestCLIJSON_EveryFieldIsDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli-json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{
		statusReport{}, outbox.Letter{}, outbox.ReplayPlan{}, outbox.ReplayResult{}, reconcileReport{}, rebasePlan{}, discarded{}, erasure{}, verdict{}, partitions.Partition{}, partitions.Action{},
	} {
		for _, name := range jsonNames(reflect.TypeOf(v), map[reflect.Type]bool{}) {
			if !strings.Contains(string(text), "`"+name+"`") && !strings.Contains(string(text), "`"+name+"[]`") {
				t.Errorf("%T: field %s is not described in docs/cli-json.md", v, name)
			}
		}
	}
}

func jsonNames(t reflect.Type, seen map[reflect.Type]bool) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || seen[t] {
		return nil
	}
	seen[t] = true
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		names = append(append(names, name), jsonNames(f.Type, seen)...)
	}
	return names
}
