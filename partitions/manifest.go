package partitions

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// manifestFormat is raised when a reader of older manifests would misread a new one.
const manifestFormat = 1

// Manifest tells what an archive holds, so that it can be judged without the database. It is written after the Parquet
// file was read back: an archive with a manifest is complete. Times are in UTC.
type Manifest struct {
	Format        int       `json:"format"`
	Partition     string    `json:"partition"`
	Parent        string    `json:"parent"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	Rows          int64     `json:"rows"`
	Bytes         int64     `json:"bytes"` // of the Parquet file
	MinPosition   int64     `json:"min_position"`
	MaxPosition   int64     `json:"max_position"`
	SchemaVersion int64     `json:"schema_version"`
	Position      string    `json:"position"` // name of the column of min and max
	Columns       []column  `json:"columns"`
	SHA256        string    `json:"sha256"`         // of the Parquet file
	ContentSHA256 string    `json:"content_sha256"` // of the rows, in the file's order, as COPY BINARY has them
	ArchivedAt    time.Time `json:"archived_at"`
}

func dataName(partition string) string     { return partition + ".parquet" }
func manifestName(partition string) string { return partition + ".json" }

// readManifest reads the manifest of a partition's archive and checks that this binary understands it.
func readManifest(ctx context.Context, store Store, partition string) (man *Manifest, err error) {
	file, err := store.Open(ctx, manifestName(partition))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	man = &Manifest{}
	decoder := json.NewDecoder(io.NewSectionReader(file, 0, file.Size()))
	if err := decoder.Decode(man); err != nil {
		return nil, fmt.Errorf("read manifest of %s: %w", partition, err)
	}
	if man.Format != manifestFormat || man.Partition != partition {
		return nil, fmt.Errorf("manifest of %s: format %d of partition %q, want format %d", partition, man.Format, man.Partition, manifestFormat)
	}
	for i := range man.Columns {
		if err := man.Columns[i].bind(); err != nil {
			return nil, fmt.Errorf("manifest of %s: %w", partition, err)
		}
	}
	if man.positionIndex() < 0 {
		return nil, fmt.Errorf("manifest of %s: position column %q is not among its columns", partition, man.Position)
	}
	return man, nil
}

func writeManifest(ctx context.Context, store Store, man *Manifest) error {
	text, err := json.MarshalIndent(man, "", "  ")
	if err != nil {
		return fmt.Errorf("encode manifest: %w", err)
	}
	return put(ctx, store, manifestName(man.Partition), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// put stores what fill writes, all of it or nothing.
func put(ctx context.Context, store Store, name string, fill func(w io.Writer) error) error {
	upload, err := store.Create(ctx, name)
	if err != nil {
		return err
	}
	if err := fill(upload); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), upload.Abort())
	}
	if err := upload.Commit(); err != nil {
		return errors.Join(err, upload.Abort())
	}
	return nil
}

// check reads the whole archive and compares it with the manifest: the bytes of the file, then each row. The bytes come
// first: nothing is parsed that is not what was written.
func (man *Manifest) check(ctx context.Context, store Store) (err error) {
	file, err := store.Open(ctx, dataName(man.Partition))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, file.Size())); err != nil {
		return fmt.Errorf("read %s: %w", dataName(man.Partition), err)
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); got != man.SHA256 || file.Size() != man.Bytes {
		return fmt.Errorf("%s is damaged: %d bytes with sha256 %s, want %d with %s", dataName(man.Partition), file.Size(), got, man.Bytes, man.SHA256)
	}
	got, err := readRows(file, man.Columns, man.positionIndex(), func([]byte) error { return ctx.Err() })
	if err != nil {
		return fmt.Errorf("read %s: %w", dataName(man.Partition), err)
	}
	return man.compare(&got)
}

func (man *Manifest) compare(got *contents) error {
	if got.rows != man.Rows || got.digest() != man.ContentSHA256 || got.rows > 0 && (got.min != man.MinPosition || got.max != man.MaxPosition) {
		return fmt.Errorf("%s holds other rows: %d from %d to %d with content sha256 %s, want %d from %d to %d with %s", dataName(man.Partition),
			got.rows, got.min, got.max, got.digest(), man.Rows, man.MinPosition, man.MaxPosition, man.ContentSHA256)
	}
	return nil
}

func (man *Manifest) positionIndex() int { return positionIndex(man.Columns, man.Position) }

func positionIndex(columns []column, name string) int {
	return slices.IndexFunc(columns, func(c column) bool { return c.Name == name && c.Type == "bigint" && c.Required })
}

// Verify reads a partition's archive completely and compares it with its manifest. The error says what differs; it wraps
// fs.ErrNotExist when there is no archive.
func Verify(ctx context.Context, store Store, partition string) (*Manifest, error) {
	man, err := readManifest(ctx, store, partition)
	if err != nil {
		return nil, err
	}
	return man, man.check(ctx, store)
}

// Archives lists the partitions that have a complete archive in the store, in order.
func Archives(ctx context.Context, store Store) ([]string, error) {
	names, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	var partitions []string
	for _, name := range names {
		if partition, ok := strings.CutSuffix(name, ".json"); ok {
			partitions = append(partitions, partition)
		}
	}
	return partitions, nil
}
