package monitor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// Expected is a device that must report although it never has: without a list, one that was installed and never switched
// on is missing from every screen.
type Expected struct{ Hub, Device string }

// idPattern is what the ids of reports look like; several levels are joined by a slash.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}(/[A-Za-z0-9._:-]{1,128})*$`)

// LoadExpected reads a file of lines "hub device"; empty lines and those that begin with # are passed over. The error
// joins all bad lines, each with its number.
func LoadExpected(path string) ([]Expected, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("expected_devices = %q: %w", path, err)
	}
	defer f.Close()
	list, err := readExpected(f)
	if err != nil {
		return nil, fmt.Errorf("expected_devices = %q: %w", path, err)
	}
	return list, nil
}

// badLinesTold bounds what one bad file can say.
const badLinesTold = 10

func readExpected(r io.Reader) ([]Expected, error) {
	var list []Expected
	var errs []error
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		f := strings.Fields(text)
		if len(f) != 2 || !idPattern.MatchString(f[0]) || !idPattern.MatchString(f[1]) {
			if errs = append(errs, fmt.Errorf("line %d: must be a hub and a device id", n)); len(errs) == badLinesTold {
				break
			}
			continue
		}
		list = append(list, Expected{Hub: f[0], Device: f[1]})
	}
	return list, errors.Join(append(errs, lines.Err())...)
}

// expectBatch is how many devices one call of the script makes known.
const expectBatch = 500

// Expect makes devices known that the view does not know yet, as never seen, and returns how many those were. It changes
// nothing about a known device, so it may be called at any time, also beside a consumer.
func (v *View) Expect(ctx context.Context, devices []Expected) (int, error) {
	added := 0
	for len(devices) > 0 {
		batch := devices[:min(expectBatch, len(devices))]
		devices = devices[len(batch):]
		args := make([]any, 0, 2*len(batch))
		for _, d := range batch {
			args = append(args, d.Hub, d.Device)
		}
		n, err := v.known.Run(ctx, v.rdb, []string{v.prefix}, args...).Int()
		if err != nil {
			return added, fmt.Errorf("make expected devices known: %w", err)
		}
		added += n
	}
	return added, nil
}

// expectEvery is how often the list is compared with the view, which may have been flushed meanwhile.
const expectEvery = 10 * time.Second

func (s *Service) expect(ctx context.Context) error {
	return every(ctx, expectEvery, func(ctx context.Context) {
		added, err := s.screen.view.Expect(ctx, s.expected)
		switch {
		case err != nil && ctx.Err() == nil:
			s.out.Log.Debug("cannot make expected devices known", "error", err)
		case added > 0:
			s.out.Log.Info("expected devices made known", "devices", added)
		}
	})
}
