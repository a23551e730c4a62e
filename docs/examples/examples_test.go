package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// TestPython_ConsumesPlainCloudEvents runs the example against the published samples: nothing of it is ours but the
// records, so it shows that another team needs neither Go nor this repository.
func TestPython_ConsumesPlainCloudEvents_C2(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import confluent_kafka").CombinedOutput(); err != nil {
		t.Skipf("the Python client is not installed (pip install confluent-kafka): %s", out)
	}
	brokers := testenv.Kafka(t)
	topic := testenv.Topic(t, brokers, 1)
	sequences := []int64{1, 2, 2, 3, 60, 5, 63}
	skips := map[int64]string{60: "41-57:superseded,58:dead", 63: "61-62:superseded"}
	publish(t, brokers, topic, sequences, skips)
	cmd := exec.CommandContext(t.Context(), python, "consume.py", strings.Join(brokers, ","), topic, "example-"+topic, "--until-end")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("consume.py: %v", err)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		var v verdict
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, fmt.Sprintf("%d %s lost %d", v.Sequence, v.Verdict, len(v.Lost)))
	}
	// 4..40 and 59 are explained by nobody: 38 events lost.
	want := []string{"1 baseline lost 0", "2 apply lost 0", "2 duplicate lost 0", "3 apply lost 0", "60 hole lost 38", "5 late lost 0", "63 hole lost 0"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// verdict is a line that the example prints.
type verdict struct {
	Sequence int64   `json:"sequence"`
	Verdict  string  `json:"verdict"`
	Lost     []int64 `json:"lost"`
}

// publish sends the published sample with other sequences, as one stream.
func publish(t *testing.T, brokers []string, topic string, sequences []int64, skips map[int64]string) {
	t.Helper()
	sample := "../../devicestate/testdata/events/full"
	value, err := os.ReadFile(filepath.FromSlash(sample + ".json"))
	if err != nil {
		t.Fatal(err)
	}
	headers, err := os.ReadFile(filepath.FromSlash(sample + ".headers"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, sequence := range sequences {
		if err := client.ProduceSync(t.Context(), record(t, value, headers, sequence, skips[sequence])).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func record(t *testing.T, value, headers []byte, sequence int64, skipped string) *kgo.Record {
	t.Helper()
	var event map[string]any
	if err := json.Unmarshal(value, &event); err != nil {
		t.Fatal(err)
	}
	event["sequence"] = sequence
	changed, err := json.Marshal(event)
	if err != nil {
		t.Fatal(err)
	}
	r := &kgo.Record{Key: []byte(fmt.Sprint(event["device_id"])), Value: changed}
	for line := range strings.Lines(string(headers)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "ce_sequence" {
			text = fmt.Sprintf("%019d", sequence)
		}
		if name != "ce_skipped" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(text)})
		}
	}
	if skipped != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_skipped", Value: []byte(skipped)})
	}
	return r
}
