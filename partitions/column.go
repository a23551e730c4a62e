package partitions

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/parquet-go/parquet-go"
)

// postgresEpoch is 2000-01-01 in microseconds since 1970: PostgreSQL counts from there.
const postgresEpoch = 946_684_800_000_000

// column is one column on its way between PostgreSQL's binary format and Parquet. Both directions are exact: what comes
// back out of an archive is byte for byte what the database sent (an infinite time wraps around there and back).
type column struct {
	Name     string `json:"name"`
	Type     string `json:"type"` // as PostgreSQL spells it
	Required bool   `json:"required"`
	mapping
}

// mapping says how the values of a type look in Parquet.
type mapping struct {
	node       parquet.Node
	toParquet  func(raw []byte) (parquet.Value, error)
	toPostgres func(dst []byte, v parquet.Value) ([]byte, error)
}

// mappings by type. Plain encodings and, for text, dictionaries: every reader knows them. A uuid is text because Spark
// refuses the UUID annotation.
func mappings() map[string]mapping {
	text := mapping{parquet.Encoded(parquet.String(), &parquet.RLEDictionary), bytesValue, bytesRaw}
	return map[string]mapping{
		"boolean":                  {parquet.Leaf(parquet.BooleanType), boolValue, boolRaw},
		"smallint":                 {plain(parquet.Int(16)), intValue(2), intRaw(2)},
		"integer":                  {plain(parquet.Int(32)), intValue(4), intRaw(4)},
		"bigint":                   {plain(parquet.Int(64)), intValue(8), intRaw(8)},
		"double precision":         {plain(parquet.Leaf(parquet.DoubleType)), doubleValue, doubleRaw},
		"text":                     text,
		"character varying":        text,
		"bytea":                    {plain(parquet.Leaf(parquet.ByteArrayType)), bytesValue, bytesRaw},
		"json":                     {plain(parquet.JSON()), bytesValue, bytesRaw},
		"jsonb":                    {plain(parquet.JSON()), jsonbValue, jsonbRaw},
		"uuid":                     {plain(parquet.String()), uuidValue, uuidRaw},
		"timestamp with time zone": {plain(parquet.Timestamp(parquet.Microsecond)), timeValue, timeRaw},
	}
}

func plain(node parquet.Node) parquet.Node { return parquet.Encoded(node, &parquet.Plain) }

// bind gives a column its mapping.
func (c *column) bind() error {
	m, ok := mappings()[c.Type]
	if !ok {
		return fmt.Errorf("column %s: type %s has no place in an archive", c.Name, c.Type)
	}
	c.mapping = m
	if !c.Required {
		c.node = parquet.Optional(c.node)
	}
	return nil
}

// value returns a column's value for row i of a Parquet row, from the raw bytes of the database; nil is NULL.
func (c *column) value(index int, raw []byte) (parquet.Value, error) {
	if raw == nil {
		return parquet.NullValue().Level(0, 0, index), nil
	}
	v, err := c.toParquet(raw)
	if err != nil {
		return v, fmt.Errorf("column %s: %w", c.Name, err)
	}
	definition := 1
	if c.Required {
		definition = 0
	}
	return v.Level(0, definition, index), nil
}

// appendField appends a value as COPY BINARY has it: length, then the bytes; NULL is length -1.
func (c *column) appendField(dst []byte, v parquet.Value) ([]byte, error) {
	if v.IsNull() {
		return binary.BigEndian.AppendUint32(dst, math.MaxUint32), nil
	}
	at := len(dst)
	dst, err := c.toPostgres(append(dst, 0, 0, 0, 0), v)
	if err != nil {
		return dst, fmt.Errorf("column %s: %w", c.Name, err)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst, nil
}

func width(raw []byte, want int) error {
	if len(raw) != want {
		return fmt.Errorf("value of %d bytes, want %d", len(raw), want)
	}
	return nil
}

func boolValue(raw []byte) (parquet.Value, error) {
	if err := width(raw, 1); err != nil {
		return parquet.Value{}, err
	}
	return parquet.BooleanValue(raw[0] != 0), nil
}

func boolRaw(dst []byte, v parquet.Value) ([]byte, error) {
	if v.Boolean() {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

func intValue(size int) func([]byte) (parquet.Value, error) {
	return func(raw []byte) (parquet.Value, error) {
		if err := width(raw, size); err != nil {
			return parquet.Value{}, err
		}
		switch size {
		case 2:
			return parquet.Int32Value(int32(int16(binary.BigEndian.Uint16(raw)))), nil
		case 4:
			return parquet.Int32Value(int32(binary.BigEndian.Uint32(raw))), nil
		}
		return parquet.Int64Value(int64(binary.BigEndian.Uint64(raw))), nil
	}
}

func intRaw(size int) func([]byte, parquet.Value) ([]byte, error) {
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		switch size {
		case 2:
			return binary.BigEndian.AppendUint16(dst, uint16(v.Int32())), nil
		case 4:
			return binary.BigEndian.AppendUint32(dst, uint32(v.Int32())), nil
		}
		return binary.BigEndian.AppendUint64(dst, uint64(v.Int64())), nil
	}
}

func doubleValue(raw []byte) (parquet.Value, error) {
	if err := width(raw, 8); err != nil {
		return parquet.Value{}, err
	}
	return parquet.DoubleValue(math.Float64frombits(binary.BigEndian.Uint64(raw))), nil
}

func doubleRaw(dst []byte, v parquet.Value) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(v.Double())), nil
}

func timeValue(raw []byte) (parquet.Value, error) {
	if err := width(raw, 8); err != nil {
		return parquet.Value{}, err
	}
	return parquet.Int64Value(int64(binary.BigEndian.Uint64(raw)) + postgresEpoch), nil
}

func timeRaw(dst []byte, v parquet.Value) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(v.Int64()-postgresEpoch)), nil
}

func bytesValue(raw []byte) (parquet.Value, error) { return parquet.ByteArrayValue(raw), nil }

func bytesRaw(dst []byte, v parquet.Value) ([]byte, error) { return append(dst, v.ByteArray()...), nil }

func uuidValue(raw []byte) (parquet.Value, error) {
	if err := width(raw, 16); err != nil {
		return parquet.Value{}, err
	}
	text := make([]byte, 36)
	hex.Encode(text[0:8], raw[0:4])
	hex.Encode(text[9:13], raw[4:6])
	hex.Encode(text[14:18], raw[6:8])
	hex.Encode(text[19:23], raw[8:10])
	hex.Encode(text[24:36], raw[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return parquet.ByteArrayValue(text), nil
}

func uuidRaw(dst []byte, v parquet.Value) ([]byte, error) {
	text := v.ByteArray()
	if len(text) != 36 {
		return dst, fmt.Errorf("uuid of %d characters", len(text))
	}
	var digits [32]byte
	copy(digits[:8], text[:8])
	copy(digits[8:], text[9:13])
	copy(digits[12:], text[14:18])
	copy(digits[16:], text[19:23])
	copy(digits[20:], text[24:])
	return hex.AppendDecode(dst, digits[:])
}

// jsonb travels as a version byte and the text.
func jsonbValue(raw []byte) (parquet.Value, error) {
	if len(raw) == 0 || raw[0] != 1 {
		return parquet.Value{}, fmt.Errorf("jsonb of an unknown version")
	}
	return parquet.ByteArrayValue(raw[1:]), nil
}

func jsonbRaw(dst []byte, v parquet.Value) ([]byte, error) {
	return append(append(dst, 1), v.ByteArray()...), nil
}
