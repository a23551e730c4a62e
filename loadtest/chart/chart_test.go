package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func TestSVG_IsWellFormedWhateverTheNumbers(t *testing.T) {
	t.Parallel()
	for name, ys := range map[string][]float64{
		"ordinary": {1, 2, 3}, "zeros": {0, 0, 0}, "holes": {1, math.NaN(), 3}, "huge": {1, 1e12, 5}, "tiny": {1e-7, 2e-7, 0}, "one": {4}, "none": nil,
	} {
		for _, log := range []bool{false, true} {
			c := Chart{Title: `a "title" <b>`, Unit: "ms & s", Log: log, Spans: []Span{{From: 1, To: 400, Label: "<kill>"}}}
			s := Series{Name: "x<y", Y: ys}
			for i := range ys {
				s.X = append(s.X, float64(i))
			}
			c.Series = []Series{s, s}
			text := c.SVG()
			if err := parse(text); err != nil {
				t.Errorf("%s, log %v: %v\n%s", name, log, err, text)
			}
			if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
				t.Errorf("%s, log %v: a coordinate is no number", name, log)
			}
		}
	}
}

func parse(text string) error {
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestLine_BreaksWhereNothingIsKnown(t *testing.T) {
	t.Parallel()
	c := Chart{Series: []Series{{X: []float64{0, 1, 2, 3}, Y: []float64{1, 2, math.NaN(), 4}}}}
	path := c.SVG()
	path = path[strings.Index(path, `class="line`):]
	path = path[:strings.Index(path, "/>")]
	if strings.Count(path, "M") != 2 || strings.Count(path, "L") != 1 {
		t.Errorf("path %s", path)
	}
}

func TestShort_KeepsWhatMatters(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 12.5: "12.5", 999: "999", 1500: "1500", 15000: "15 k", 1234567: "1.23 M", 2.5e9: "2.5 G"} {
		if got := Short(v); got != want {
			t.Errorf("%g is written %q, want %q", v, got, want)
		}
	}
}
