// Package chart draws time series as inline SVG: lines over seconds, faults as shaded spans, a readable axis. It needs
// nothing but the page it is put into; colours come from the page's style sheet by class.
package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Series is one line. X are seconds; a NaN in Y breaks the line.
type Series struct {
	Name string
	X, Y []float64
}

// Span is a stretch of time to shade, such as a fault and its repair.
type Span struct {
	From, To float64
	Label    string
}

// Chart is one drawing.
type Chart struct {
	Title  string
	Unit   string // of Y
	Log    bool   // logarithmic Y, for latencies
	Series []Series
	Spans  []Span
}

// The drawing's measures, in user units.
const (
	width, height  = 640.0, 240.0
	left, right    = 56.0, 12.0
	top, bottom    = 28.0, 26.0
	plotWidth      = width - left - right
	plotHeight     = height - top - bottom
	xTicks, yTicks = 6, 4
	smallestOfLog  = 1.0
)

// SVG returns the drawing.
func (c Chart) SVG() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, html.EscapeString(c.Title))
	fmt.Fprintf(&b, `<text class="title" x="%g" y="14">%s</text>`, left, html.EscapeString(c.Title))
	xs, ys := c.scales()
	c.drawSpans(&b, xs)
	c.drawAxes(&b, xs, ys)
	for i, s := range c.Series {
		drawLine(&b, s, i, xs, ys)
	}
	c.drawColumns(&b, xs)
	b.WriteString(`</svg>`)
	return b.String()
}

// Legend returns the names of the lines in their colours; empty for a single line.
func (c Chart) Legend() string {
	if len(c.Series) < 2 {
		return ""
	}
	var b strings.Builder
	b.WriteString(`<ul class="legend">`)
	for i, s := range c.Series {
		fmt.Fprintf(&b, `<li><span class="key s%d"></span>%s</li>`, i, html.EscapeString(s.Name))
	}
	b.WriteString(`</ul>`)
	return b.String()
}

// scale maps values to user units.
type scale struct {
	min, max, from, to float64
	log                bool
	ticks              []float64
}

func (s scale) at(v float64) float64 {
	lo, hi := s.min, s.max
	if s.log {
		v, lo, hi = math.Log10(math.Max(v, s.min)), math.Log10(s.min), math.Log10(s.max)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

func (c Chart) scales() (x, y scale) {
	maxX, maxY := 1.0, 0.0
	for _, s := range c.Series {
		for i := range s.X {
			maxX = math.Max(maxX, s.X[i])
			if !math.IsNaN(s.Y[i]) {
				maxY = math.Max(maxY, s.Y[i])
			}
		}
	}
	x = scale{max: maxX, from: left, to: width - right}
	x.ticks = ticks(maxX, xTicks)
	y = scale{from: height - bottom, to: top, log: c.Log}
	if c.Log {
		y.min, y.max = smallestOfLog, math.Pow(10, math.Max(1, math.Ceil(math.Log10(math.Max(maxY, smallestOfLog)))))
		for v := y.min; v <= y.max; v *= 10 {
			y.ticks = append(y.ticks, v)
		}
		return x, y
	}
	y.ticks = ticks(math.Max(maxY, 1e-9), yTicks)
	y.max = math.Max(maxY, y.ticks[len(y.ticks)-1])
	return x, y
}

// ticks are about n round values from 0 to at most the first above max.
func ticks(max float64, n int) []float64 {
	raw := max / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := unit
	for _, f := range []float64{1, 2, 5, 10} {
		if step = f * unit; step >= raw {
			break
		}
	}
	var all []float64
	for i := 0; float64(i)*step <= max*1.0001; i++ {
		all = append(all, float64(i)*step)
	}
	if len(all) < 2 {
		all = append(all, step)
	}
	return all
}

func (c Chart) drawSpans(b *strings.Builder, x scale) {
	for _, s := range c.Spans {
		from, to := x.at(s.From), math.Min(x.at(s.To), width-right)
		fmt.Fprintf(b, `<rect class="span" x="%.1f" y="%g" width="%.1f" height="%g"><title>%s</title></rect>`,
			from, top, math.Max(to-from, 1), plotHeight, html.EscapeString(s.Label))
	}
}

func (c Chart) drawAxes(b *strings.Builder, x, y scale) {
	for _, v := range y.ticks {
		at := y.at(v)
		fmt.Fprintf(b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, left, width-right, at, at)
		fmt.Fprintf(b, `<text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`, left-6, at+3.5, Short(v))
	}
	for _, v := range x.ticks {
		fmt.Fprintf(b, `<text class="tick" x="%.1f" y="%g" text-anchor="middle">%s s</text>`, x.at(v), height-bottom+15, Short(v))
	}
	fmt.Fprintf(b, `<text class="tick" x="%g" y="14" text-anchor="end">%s</text>`, width-right, html.EscapeString(c.Unit))
}

func drawLine(b *strings.Builder, s Series, i int, x, y scale) {
	fmt.Fprintf(b, `<path class="line s%d" d="`, i)
	pen := "M"
	for j := range s.X {
		if math.IsNaN(s.Y[j]) {
			pen = "M"
			continue
		}
		fmt.Fprintf(b, "%s%.1f %.1f", pen, x.at(s.X[j]), y.at(s.Y[j]))
		pen = "L"
	}
	b.WriteString(`"/>`)
}

// drawColumns lays an invisible column over each second that tells its values when pointed at.
func (c Chart) drawColumns(b *strings.Builder, x scale) {
	if len(c.Series) == 0 || len(c.Series[0].X) == 0 {
		return
	}
	xs := c.Series[0].X
	step := plotWidth / float64(len(xs))
	for i, v := range xs {
		fmt.Fprintf(b, `<rect class="column" x="%.1f" y="%g" width="%.1f" height="%g"><title>%s</title></rect>`,
			x.at(v)-step/2, top, step, plotHeight, html.EscapeString(c.values(i, v)))
	}
}

func (c Chart) values(i int, x float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f s", x)
	for _, s := range c.Series {
		if i < len(s.Y) && !math.IsNaN(s.Y[i]) {
			fmt.Fprintf(&b, "\n%s: %s %s", s.Name, Short(s.Y[i]), c.Unit)
		}
	}
	return b.String()
}

// Short writes a number with at most four significant places: 1234567 is 1.23 M.
func Short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e9:
		return trim(v/1e9) + " G"
	case a >= 1e6:
		return trim(v/1e6) + " M"
	case a >= 1e4:
		return trim(v/1e3) + " k"
	}
	return trim(v)
}

func trim(v float64) string {
	places := 2
	if math.Abs(v) >= 100 {
		places = 0
	}
	text := fmt.Sprintf("%.*f", places, v)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
