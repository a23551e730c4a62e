package partitions

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"reflect"

	"github.com/parquet-go/parquet-go"
)

const (
	// rowGroupBytes bounds what a writer holds in memory: a row group is closed when its rows were this large.
	rowGroupBytes = 16 << 20
	// rowBatch is how many rows go to and from the library at once.
	rowBatch = 256
)

// contents is what is counted of the rows of an archive, on the way in and again on the way out.
type contents struct {
	rows     int64
	min, max int64 // of the position column; meaningless without rows
	sum      hash.Hash
}

func newContents() contents { return contents{sum: sha256.New()} }

// add takes one row in COPY BINARY form and its position.
func (c *contents) add(tuple []byte, position int64) {
	if c.rows == 0 {
		c.min, c.max = position, position
	}
	c.rows++
	c.min, c.max = min(c.min, position), max(c.max, position)
	c.sum.Write(tuple)
}

func (c *contents) digest() string { return fmt.Sprintf("%x", c.sum.Sum(nil)) }

// parquetSchema lists the columns in the table's order, which a plain parquet.Group would sort by name.
func parquetSchema(name string, columns []column) *parquet.Schema {
	group := orderedGroup{Group: parquet.Group{}}
	for i := range columns {
		group.Group[columns[i].Name] = columns[i].node
		group.fields = append(group.fields, orderedField{columns[i].node, columns[i].Name})
	}
	return parquet.NewSchema(name, group)
}

type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

func (g orderedGroup) Fields() []parquet.Field { return g.fields }

type orderedField struct {
	parquet.Node
	name string
}

func (f orderedField) Name() string { return f.name }

// Value is for Go structs and maps; rows are written and read as values.
func (f orderedField) Value(base reflect.Value) reflect.Value {
	return base.MapIndex(reflect.ValueOf(f.name))
}

// rowWriter writes rows, given as PostgreSQL's raw bytes, to a Parquet file.
type rowWriter struct {
	contents
	columns  []column
	position int // index of the position column
	parquet  *parquet.GenericWriter[any]
	batch    []parquet.Row // capacity rowBatch, see newBatch
	arena    []byte        // keeps the bytes of the batch; the database's buffers are valid for one row only
	tuple    []byte
	unsynced int // bytes of rows since the last row group
}

func newRowWriter(w io.Writer, name string, columns []column, position int) *rowWriter {
	options := []parquet.WriterOption{
		parquetSchema(name, columns), parquet.Compression(&parquet.Zstd), parquet.CreatedBy("hubstate", "1", ""),
	}
	for i := range columns {
		if columns[i].Type == "bytea" {
			options = append(options, parquet.SkipPageBounds(columns[i].Name)) // nobody looks for a payload by its bytes
		}
	}
	return &rowWriter{
		contents: newContents(), columns: columns, position: position, batch: newBatch(len(columns)),
		parquet: parquet.NewGenericWriter[any](w, options...),
	}
}

// add takes one row; raws are valid only during the call.
func (w *rowWriter) add(raws [][]byte) error {
	w.tuple = appendTuple(w.tuple[:0], raws)
	w.contents.add(w.tuple, int64(binary.BigEndian.Uint64(raws[w.position])))
	row := w.nextRow()
	for i, raw := range raws {
		v, err := w.columns[i].value(i, w.keep(raw))
		if err != nil {
			return err
		}
		row[i] = v
	}
	w.unsynced += len(w.tuple)
	if len(w.batch) < rowBatch && w.unsynced < rowGroupBytes {
		return nil
	}
	return w.flush()
}

// newBatch makes all rows of a batch at once; it is empty and they are used again after each flush.
func newBatch(width int) []parquet.Row {
	values := make([]parquet.Value, rowBatch*width)
	batch := make([]parquet.Row, rowBatch)
	for i := range batch {
		batch[i] = values[i*width : (i+1)*width : (i+1)*width]
	}
	return batch[:0]
}

// nextRow lengthens the batch by one row and returns it.
func (w *rowWriter) nextRow() parquet.Row {
	w.batch = w.batch[:len(w.batch)+1]
	return w.batch[len(w.batch)-1]
}

func (w *rowWriter) keep(raw []byte) []byte {
	if raw == nil {
		return nil
	}
	at := len(w.arena)
	w.arena = append(w.arena, raw...)
	return w.arena[at:len(w.arena):len(w.arena)]
}

func (w *rowWriter) flush() error {
	if _, err := w.parquet.WriteRows(w.batch); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	w.batch, w.arena = w.batch[:0], w.arena[:0]
	if w.unsynced < rowGroupBytes {
		return nil
	}
	w.unsynced = 0
	return w.parquet.Flush()
}

func (w *rowWriter) close() error {
	if err := w.flush(); err != nil {
		return err
	}
	return w.parquet.Close()
}

// appendTuple appends a row as COPY BINARY has it.
func appendTuple(dst []byte, raws [][]byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(raws)))
	for _, raw := range raws {
		if raw == nil {
			dst = binary.BigEndian.AppendUint32(dst, ^uint32(0))
			continue
		}
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(raw))), raw...)
	}
	return dst
}

// readRows reads a Parquet file of these columns and calls each with every row in COPY BINARY form; the bytes are valid
// only during the call.
func readRows(file File, columns []column, position int, each func(tuple []byte) error) (contents, error) {
	got := newContents()
	parsed, err := parquet.OpenFile(file, file.Size(), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return got, fmt.Errorf("open Parquet file: %w", err)
	}
	if err := sameColumns(parsed.Schema(), columns); err != nil {
		return got, err
	}
	for _, group := range parsed.RowGroups() {
		if err := readGroup(group.Rows(), columns, position, &got, each); err != nil {
			return got, err
		}
	}
	return got, nil
}

func sameColumns(have *parquet.Schema, want []column) error {
	fields := have.Fields()
	if len(fields) != len(want) {
		return fmt.Errorf("the file has %d columns, its manifest %d", len(fields), len(want))
	}
	for i, f := range fields {
		if f.Name() != want[i].Name || f.Optional() == want[i].Required || f.Type().Kind() != want[i].node.Type().Kind() {
			return fmt.Errorf("column %d of the file is %s %s, in its manifest %s %s", i+1, f.Name(), f.Type(), want[i].Name, want[i].Type)
		}
	}
	return nil
}

func readGroup(rows parquet.Rows, columns []column, position int, got *contents, each func([]byte) error) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	buffer := make([]parquet.Row, rowBatch)
	var tuple []byte
	for {
		n, readErr := rows.ReadRows(buffer)
		for _, row := range buffer[:n] {
			if tuple, err = rowTuple(tuple[:0], row, columns); err != nil {
				return err
			}
			got.add(tuple, row[position].Int64())
			if err := each(tuple); err != nil {
				return err
			}
		}
		if errors.Is(readErr, io.EOF) {
			return nil
		}
		if readErr != nil {
			return fmt.Errorf("read rows: %w", readErr)
		}
	}
}

func rowTuple(dst []byte, row parquet.Row, columns []column) ([]byte, error) {
	if len(row) != len(columns) {
		return dst, fmt.Errorf("row of %d values, want %d", len(row), len(columns))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(row)))
	var err error
	for i, v := range row {
		if dst, err = columns[i].appendField(dst, v); err != nil {
			return dst, err
		}
	}
	return dst, nil
}
