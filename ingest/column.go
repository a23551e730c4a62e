package ingest

import "github.com/jackc/pgx/v5/pgtype"

// column is a slice as a PostgreSQL array. pgx encodes a plain slice through reflection and boxes every element; a column
// hands its elements over by pointer: no allocation, a third of the time. Elements are pgtype values, text or blob.
type column[T any] []T

// Dimensions implements pgtype.ArrayGetter.
func (c column[T]) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(c)), LowerBound: 1}}
}

// Index implements pgtype.ArrayGetter.
func (c column[T]) Index(i int) any { return &c[i] }

// IndexType implements pgtype.ArrayGetter.
func (c column[T]) IndexType() any { return new(T) }

// text is a string that is never NULL.
type text string

// TextValue implements pgtype.TextValuer.
func (t *text) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

// number is an integer that is never NULL, for all sizes of integer columns.
type number int64

// Int64Value implements pgtype.Int64Valuer.
func (n *number) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

// blob is a bytea that is never NULL.
type blob []byte

// BytesValue implements pgtype.BytesValuer.
func (b *blob) BytesValue() ([]byte, error) { return *b, nil }
