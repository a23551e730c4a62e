package outbox_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/hubstate/hubstate/internal/testenv"
	"github.com/hubstate/hubstate/outbox"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReadTails_NewestOfEachBucket: by position, not by place on the topic; replays, other cells and foreign records do
// not count; buckets that share a partition are told apart, also when one of them lies far behind.
func TestReadTails_NewestOfEachBucket(t *testing.T) {
	t.Parallel()
	brokers := testenv.FakeKafka(t, kfake.SeedTopics(2, "t")).ListenAddrs()
	client := topicClient(t, brokers)
	put := func(cell string, bucket, position int64, replay string) {
		t.Helper()
		r := &kgo.Record{Topic: "t", Key: []byte(fmt.Sprint("d", bucket)), Headers: []kgo.RecordHeader{
			{Key: outbox.HeaderCell, Value: []byte(cell)},
			{Key: outbox.HeaderBucket, Value: strconv.AppendInt(nil, bucket, 10)},
			{Key: outbox.HeaderPosition, Value: strconv.AppendInt(nil, position, 10)},
			{Key: outbox.HeaderEpoch, Value: []byte("7")},
			{Key: outbox.HeaderSequence, Value: fmt.Appendf(nil, "%019d", position)},
			{Key: outbox.HeaderID, Value: []byte(uuid.NewString())},
		}}
		if replay != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: outbox.HeaderReplay, Value: []byte(replay)})
		}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	put("a", 0, 5, "")
	for i := range int64(600) { // bucket 0 of cell a lies deeper than the first look
		put("a", 2, 100+i, "")
		put("b", 0, 9_000+i, "")
	}
	put("a", 2, 42, "") // a topic duplicate of an old row
	put("a", 2, 10_000, "plan")
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("foreign")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	opts, err := outbox.KafkaConfig{Brokers: brokers}.Options()
	if err != nil {
		t.Fatal(err)
	}
	tails, err := outbox.ReadTails(t.Context(), opts, outbox.TopicRef{Topic: "t", Cell: "a", Partitions: 2, Buckets: 4})
	if err != nil {
		t.Fatal(err)
	}
	if len(tails) != 2 || tails[0].Position != 5 || tails[2].Position != 699 || tails[2].Epoch != 7 || tails[2].Sequence != 699 || tails[2].AggregateID != "d2" {
		t.Errorf("tails %+v", tails)
	}
}
