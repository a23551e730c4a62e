package outbox

import (
	"encoding/binary"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of a published record: CloudEvents 1.0, Kafka binary content mode, and what the relay adds. The value is the
// payload, byte for byte.
const (
	HeaderSpecVersion   = "ce_specversion"
	HeaderID            = "ce_id"
	HeaderSource        = "ce_source"
	HeaderType          = "ce_type"
	HeaderSubject       = "ce_subject"
	HeaderTime          = "ce_time"
	HeaderSequence      = "ce_sequence"
	HeaderEpoch         = "ce_epoch"
	HeaderStream        = "ce_stream"
	HeaderPartitionKey  = "ce_partitionkey"
	HeaderTraceparent   = "ce_traceparent"
	HeaderCorrelationID = "ce_correlationid"
	HeaderCausationID   = "ce_causationid"
	HeaderSchemaVersion = "ce_schemaversion"
	HeaderContentType   = "content-type"
	HeaderCell          = "ce_cell"
	HeaderBucket        = "ce_bucket"
	HeaderPosition      = "ce_position"
	HeaderCommittedAt   = "ce_committedat"
	HeaderSkipped       = "ce_skipped"
	HeaderReplay        = "ce_replay"
)

// maxHeaders is how many headers one record can have.
const maxHeaders = 21

// columns of sweepRows, all in binary format.
const (
	colBucket = iota
	colPosition
	colID
	colAggregate
	colType
	colVersion
	colStream
	colEpoch
	colSequence
	colSource
	colTraceparent
	colCorrelation
	colCausation
	colPayload
	colOccurred
	colCreated
	numColumns
)

// renderer turns swept rows into records. It holds what is the same in all of them. Not safe for concurrent use.
type renderer struct {
	topic      string
	partitions int
	cell       []byte
	specs      []byte
	content    []byte
	lastMicros int64 // rows of one transaction share created_at: its text is kept
	lastText   []byte
}

func newRenderer(cfg *Config) *renderer {
	return &renderer{topic: cfg.Topic, partitions: cfg.TopicPartitions, cell: []byte(cfg.Cell), specs: []byte("1.0"), content: []byte("application/json")}
}

// add renders one row into w. raw is valid only during the call: everything is copied into the window's slab.
// skipped is the value of ce_skipped, empty for none.
func (r *renderer) add(w *window, raw [][]byte, skipped []byte) {
	total := 192 + len(skipped)
	for _, c := range raw {
		total += len(c)
	}
	w.reserve(total)
	h := w.room()
	key := w.copy(raw[colAggregate])
	position := int64(binary.BigEndian.Uint64(raw[colPosition]))
	var id [16]byte
	copy(id[:], raw[colID])

	start := len(w.headers)
	put := func(name string, value []byte) { h = append(h, kgo.RecordHeader{Key: name, Value: value}) }
	text := func(name string, value []byte) {
		if len(value) > 0 {
			put(name, w.copy(value))
		}
	}
	put(HeaderSpecVersion, r.specs)
	put(HeaderID, w.uuid(id))
	text(HeaderSource, raw[colSource])
	text(HeaderType, raw[colType])
	put(HeaderSubject, key)
	if raw[colOccurred] != nil {
		put(HeaderTime, w.instant(micros(raw[colOccurred])))
	}
	put(HeaderSequence, w.padded(int64(binary.BigEndian.Uint64(raw[colSequence]))))
	put(HeaderEpoch, w.number(int64(binary.BigEndian.Uint64(raw[colEpoch]))))
	text(HeaderStream, raw[colStream])
	put(HeaderPartitionKey, key)
	text(HeaderTraceparent, raw[colTraceparent])
	text(HeaderCorrelationID, raw[colCorrelation])
	text(HeaderCausationID, raw[colCausation])
	put(HeaderSchemaVersion, w.number(int64(int16(binary.BigEndian.Uint16(raw[colVersion])))))
	put(HeaderContentType, r.content)
	put(HeaderCell, r.cell)
	put(HeaderBucket, w.number(int64(w.bucket)))
	put(HeaderPosition, w.number(position))
	created := micros(raw[colCreated])
	put(HeaderCommittedAt, r.committedAt(w, created))
	text(HeaderSkipped, skipped)
	w.headers = w.headers[:start+len(h)]

	value := w.copy(raw[colPayload])
	w.records = append(w.records, kgo.Record{Topic: r.topic, Partition: Partition(w.bucket, r.partitions), Key: key, Value: value, Headers: h})
	size := recordSize(key, value, h)
	w.rows = append(w.rows, row{position: position, id: id, created: created, size: int32(size)})
	w.bytes += size + recordOverhead
}

// recordOverhead is what a record costs in memory beside its bytes: the Record, its headers' slices, the row.
const recordOverhead = 1024

// recordSize is an upper bound of a record's bytes in a batch before compression.
func recordSize(key, value []byte, headers []kgo.RecordHeader) int {
	n := 32 + len(key) + len(value)
	for i := range headers {
		n += 6 + len(headers[i].Key) + len(headers[i].Value)
	}
	return n
}

// room returns an empty header slice of capacity maxHeaders inside the window's header slab.
func (w *window) room() []kgo.RecordHeader {
	if cap(w.headers)-len(w.headers) < maxHeaders {
		w.headers = make([]kgo.RecordHeader, 0, max(maxHeaders*64, min(2*cap(w.headers), maxHeaders*1024)))
	}
	n := len(w.headers)
	return w.headers[n:n:min(n+maxHeaders, cap(w.headers))]
}

// postgresEpoch is 2000-01-01 in Unix microseconds.
const postgresEpoch = 946684800_000_000

func micros(timestamptz []byte) int64 {
	return int64(binary.BigEndian.Uint64(timestamptz)) + postgresEpoch
}

const timeLayout = "2006-01-02T15:04:05.000000Z"

func (w *window) instant(unixMicros int64) []byte {
	start := len(w.slab)
	w.slab = time.UnixMicro(unixMicros).UTC().AppendFormat(w.slab, timeLayout)
	return w.slab[start:len(w.slab):len(w.slab)]
}

func (r *renderer) committedAt(w *window, unixMicros int64) []byte {
	if unixMicros != r.lastMicros || r.lastText == nil {
		r.lastMicros = unixMicros
		r.lastText = time.UnixMicro(unixMicros).UTC().AppendFormat(r.lastText[:0], timeLayout)
	}
	return w.copy(r.lastText)
}

func (w *window) number(v int64) []byte {
	start := len(w.slab)
	w.slab = strconv.AppendInt(w.slab, v, 10)
	return w.slab[start:len(w.slab):len(w.slab)]
}

// padded is 19 digits, so that sequences sort as text.
func (w *window) padded(v int64) []byte {
	var digits [19]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + v%10)
		v /= 10
	}
	return w.copy(digits[:])
}

const hexDigits = "0123456789abcdef"

func (w *window) uuid(id [16]byte) []byte {
	start := len(w.slab)
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			w.slab = append(w.slab, '-')
		}
		w.slab = append(w.slab, hexDigits[b>>4], hexDigits[b&15])
	}
	return w.slab[start:len(w.slab):len(w.slab)]
}
