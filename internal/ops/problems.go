package ops

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Problems collects what is wrong with a configuration so that an operator sees all of it at once.
// The zero value is ready. Not safe for concurrent use.
type Problems struct{ list []string }

// ConfigError is a refused configuration: one line a problem, each naming field, value and limit.
// Main ends with exit code 2 for it: starting again changes nothing.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	noun := "problems"
	if len(e.Problems) == 1 {
		noun = "problem"
	}
	return fmt.Sprintf("configuration refused, %d %s:\n  - %s", len(e.Problems), noun, strings.Join(e.Problems, "\n  - "))
}

// Add records that field has a value outside of its limit, written as "field = value: limit". URLs are masked.
func (p *Problems) Add(field string, value any, limit string) {
	text := fmt.Sprint(value)
	switch value.(type) {
	case string, fmt.Stringer:
		text = Mask(text)
	}
	if _, ok := value.(string); ok {
		text = fmt.Sprintf("%q", text)
	}
	p.list = append(p.list, fmt.Sprintf("%s = %s: %s", field, text, limit))
}

// Addf records a problem in free words. The caller masks what is secret.
func (p *Problems) Addf(format string, args ...any) {
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

// Merge takes over the problems of err, each with prefix in front: those of a ConfigError, the parts of errors.Join, or
// err itself as one.
func (p *Problems) Merge(prefix string, err error) {
	if err == nil {
		return
	}
	var refused *ConfigError
	if errors.As(err, &refused) {
		for _, line := range refused.Problems {
			p.list = append(p.list, prefix+line)
		}
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, part := range joined.Unwrap() {
			p.Merge(prefix, part)
		}
		return
	}
	p.list = append(p.list, prefix+Mask(err.Error()))
}

// Require records a problem when value is empty.
func (p *Problems) Require(field, value string) {
	if strings.TrimSpace(value) == "" {
		p.Add(field, value, "is required")
	}
}

// OneOf records a problem when value is none of allowed.
func (p *Problems) OneOf(field, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		p.Add(field, value, "must be one of "+strings.Join(allowed, ", "))
	}
}

// URL records a problem when value is not a URL with one of schemes and a host.
func (p *Problems) URL(field, value string, schemes ...string) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) {
		p.Add(field, value, "must be a URL such as "+schemes[0]+"://host:port")
	}
}

// HostPort records a problem when value is not host:port; an empty host listens everywhere.
func (p *Problems) HostPort(field, value string) {
	if _, port, err := net.SplitHostPort(value); err != nil || port == "" {
		p.Add(field, value, "must be host:port, for example 127.0.0.1:9100")
	}
}

// Between records a problem when value is not in [lo, hi].
func Between[T cmp.Ordered](p *Problems, field string, value, lo, hi T) {
	if value < lo || value > hi {
		p.Add(field, value, fmt.Sprintf("must be between %v and %v", lo, hi))
	}
}

// Positive records a problem when a duration is not above zero.
func (p *Problems) Positive(field string, value time.Duration) {
	if value <= 0 {
		p.Add(field, value, "must be more than 0s")
	}
}

// Err is nil without problems, else one *ConfigError with all of them.
func (p *Problems) Err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &ConfigError{Problems: slices.Clone(p.list)}
}
