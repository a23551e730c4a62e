package rig

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Metrics reads /metrics of all running members of a daemon and sums samples of the same name, labels ignored. A member
// that does not answer is left out: it may be the one that is down.
func (in *Installation) Metrics(ctx context.Context, name string) map[string]float64 {
	sums := map[string]float64{}
	for _, c := range in.components[name] {
		d, ok := c.(*daemon)
		if !ok || d.ended() {
			continue
		}
		samples, err := scrape(ctx, d.admin)
		if err != nil {
			continue
		}
		for metric, v := range samples {
			sums[metric] += v
		}
	}
	return sums
}

func scrape(ctx context.Context, admin string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", resp.Status)
	}
	return parseMetrics(resp.Body)
}

// parseMetrics reads the text format, as far as sums need it.
func parseMetrics(r io.Reader) (map[string]float64, error) {
	sums := map[string]float64{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		text := lines.Text()
		if strings.HasPrefix(text, "#") {
			continue
		}
		at := strings.LastIndexByte(text, ' ')
		if at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(text[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", text, err)
		}
		name, _, _ := strings.Cut(text[:at], "{")
		sums[name] += v
	}
	return sums, nil
}
