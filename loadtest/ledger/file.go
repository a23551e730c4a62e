package ledger

import (
	"bufio"
	"compress/gzip"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"time"
)

// image is the file's form: the same without locks and index.
type image struct {
	Scenario string
	Seed     uint64
	Start    time.Time
	Streams  []streamImage
}

type streamImage struct {
	Device, Hub, Name string
	Reports           []Report
}

// Save writes l to path. The fleet must have stopped.
func (l *Ledger) Save(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("save ledger: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip := gzip.NewWriter(f)
	img := image{Scenario: l.Scenario, Seed: l.Seed, Start: l.Start}
	for _, s := range l.Streams {
		img.Streams = append(img.Streams, streamImage{s.Device, s.Hub, s.Name, s.Reports})
	}
	if err := errors.Join(gob.NewEncoder(zip).Encode(img), zip.Close()); err != nil {
		return fmt.Errorf("save ledger: %w", err)
	}
	return nil
}

// Load reads what Save wrote.
func Load(path string) (*Ledger, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load ledger: %w", err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return nil, fmt.Errorf("load ledger: %w", err)
	}
	var img image
	if err := gob.NewDecoder(zip).Decode(&img); err != nil {
		return nil, fmt.Errorf("load ledger: %w", err)
	}
	var streams []*Stream
	for _, s := range img.Streams {
		streams = append(streams, &Stream{Device: s.Device, Hub: s.Hub, Name: s.Name, Reports: s.Reports})
	}
	l := New(img.Scenario, img.Seed, img.Start, streams)
	return l, l.Validate()
}
