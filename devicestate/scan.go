package devicestate

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// document is a validated JSON text as a flat list of values in text order. A value's children follow it directly;
// end is the index past its last descendant, so siblings are reached without pointers.
type document struct {
	src    []byte
	values []value
	spaces bool // insignificant white space stands somewhere: raw bytes are not compact
}

type value struct {
	kind             byte // { [ " 0 t f n
	start, stop      int32
	keyStart, keyEnd int32 // raw key between its quotes; for members of an object
	end              int32
	keyEscaped       bool
}

// scanner is the strict parser: it accepts exactly the JSON that both Go and PostgreSQL's jsonb can hold, so that state,
// outbox and gate never disagree about a payload.
type scanner struct {
	doc   *document
	pos   int
	depth int
	lim   Limits
}

// scan validates src and fills dst, whose buffers are reused, with its values. The error is a *Reject.
func scan(dst *document, src []byte, lim Limits) error {
	dst.src, dst.values, dst.spaces = src, dst.values[:0], false
	s := scanner{doc: dst, lim: lim}
	s.skipSpace()
	if err := s.value(0, 0, false); err != nil {
		return err
	}
	s.skipSpace()
	if s.pos != len(src) {
		return s.syntax("text after the value")
	}
	return nil
}

func (s *scanner) syntax(what string) *Reject {
	return reject(ReasonNotJSON, "", "%s at byte %d", what, s.pos)
}

func (s *scanner) peek() byte {
	if s.pos < len(s.doc.src) {
		return s.doc.src[s.pos]
	}
	return 0
}

func (s *scanner) skipSpace() {
	for s.pos < len(s.doc.src) {
		switch s.doc.src[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
			s.doc.spaces = true
		default:
			return
		}
	}
}

func (s *scanner) value(keyStart, keyEnd int, keyEscaped bool) *Reject {
	i := len(s.doc.values)
	s.doc.values = append(s.doc.values, value{start: int32(s.pos), keyStart: int32(keyStart), keyEnd: int32(keyEnd), keyEscaped: keyEscaped})
	kind, err := s.body(i)
	if err != nil {
		return err
	}
	v := &s.doc.values[i]
	v.kind, v.stop, v.end = kind, int32(s.pos), int32(len(s.doc.values))
	return nil
}

func (s *scanner) body(i int) (byte, *Reject) {
	switch c := s.peek(); {
	case c == '{':
		return c, s.nested(i, '}', s.member)
	case c == '[':
		return c, s.nested(i, ']', s.element)
	case c == '"':
		_, err := s.str()
		return c, err
	case c == 't':
		return c, s.word("true")
	case c == 'f':
		return c, s.word("false")
	case c == 'n':
		return c, s.word("null")
	case c == '-' || (c >= '0' && c <= '9'):
		return '0', s.number()
	}
	return 0, s.syntax("no value")
}

func (s *scanner) word(w string) *Reject {
	if string(s.doc.src[s.pos:min(len(s.doc.src), s.pos+len(w))]) != w {
		return s.syntax("no value")
	}
	s.pos += len(w)
	return nil
}

func (s *scanner) nested(i int, closer byte, item func() *Reject) *Reject {
	if s.depth++; s.depth > s.lim.Depth {
		return reject(ReasonTooDeep, "", "nesting exceeds %d at byte %d", s.lim.Depth, s.pos)
	}
	s.pos++
	s.skipSpace()
	for first := true; s.peek() != closer; first = false {
		if !first {
			if s.peek() != ',' {
				return s.syntax("neither a comma nor the end")
			}
			s.pos++
			s.skipSpace()
		}
		if err := item(); err != nil {
			return err
		}
		s.skipSpace()
	}
	s.pos++
	s.depth--
	if closer == '}' {
		return s.checkKeys(i)
	}
	return nil
}

func (s *scanner) element() *Reject { return s.value(0, 0, false) }

func (s *scanner) member() *Reject {
	if s.peek() != '"' {
		return s.syntax("no key")
	}
	start := s.pos + 1
	escaped, err := s.str()
	if err != nil {
		return err
	}
	end := s.pos - 1
	s.skipSpace()
	if s.peek() != ':' {
		return s.syntax("no colon")
	}
	s.pos++
	s.skipSpace()
	return s.value(start, end, escaped)
}

// str reads a string and reports whether it holds escapes.
func (s *scanner) str() (bool, *Reject) {
	s.pos++
	escaped, ascii, start := false, true, s.pos
	for s.pos < len(s.doc.src) {
		switch c := s.doc.src[s.pos]; {
		case c == '"':
			if !ascii && !utf8.Valid(s.doc.src[start:s.pos]) {
				return false, reject(ReasonInvalidUTF8, "", "string at byte %d", start)
			}
			s.pos++
			return escaped, nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return false, err
			}
		case c < 0x20:
			return false, s.syntax("control character in a string")
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.pos++
		}
	}
	return false, s.syntax("unclosed string")
}

func (s *scanner) escape() *Reject {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		return s.unicode()
	}
	return s.syntax("bad escape")
}

func (s *scanner) unicode() *Reject {
	r, ok := s.hex4(s.pos + 1)
	switch {
	case !ok:
		return s.syntax("bad \\u escape")
	case r == 0:
		return reject(ReasonNullCharacter, "", "\\u0000 at byte %d", s.pos)
	case r >= 0xDC00 && r <= 0xDFFF:
		return reject(ReasonLoneSurrogate, "", "low surrogate at byte %d", s.pos)
	case r < 0xD800 || r > 0xDBFF:
		s.pos += 5
		return nil
	}
	low, ok := s.lowSurrogate()
	if !ok || low < 0xDC00 || low > 0xDFFF {
		return reject(ReasonLoneSurrogate, "", "high surrogate at byte %d", s.pos)
	}
	s.pos += 11
	return nil
}

func (s *scanner) lowSurrogate() (uint32, bool) {
	at := s.pos + 5
	if at+1 >= len(s.doc.src) || s.doc.src[at] != '\\' || s.doc.src[at+1] != 'u' {
		return 0, false
	}
	return s.hex4(at + 2)
}

func (s *scanner) hex4(at int) (uint32, bool) {
	if at+4 > len(s.doc.src) {
		return 0, false
	}
	var r uint32
	for _, c := range s.doc.src[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | uint32(c)
	}
	return r, true
}

// number accepts what a float64 can hold: encoding/json refuses anything larger, so such a state would be poison for
// every consumer that decodes it.
func (s *scanner) number() *Reject {
	start := s.pos
	if err := s.numberText(); err != nil {
		return err
	}
	if s.pos-start < maxPlainNumber {
		return nil
	}
	if f, err := strconv.ParseFloat(string(s.doc.src[start:s.pos]), 64); err != nil || math.IsInf(f, 0) {
		return reject(ReasonNumberRange, "", "number at byte %d exceeds %g", start, math.MaxFloat64)
	}
	return nil
}

// maxPlainNumber is the shortest text that can exceed a float64: 9e308.
const maxPlainNumber = 5

func (s *scanner) numberText() *Reject {
	if s.peek() == '-' {
		s.pos++
	}
	switch c := s.peek(); {
	case c == '0':
		s.pos++
	case c >= '1' && c <= '9':
		s.digits()
	default:
		return s.syntax("bad number")
	}
	if s.peek() == '.' {
		s.pos++
		if s.digits() == 0 {
			return s.syntax("bad fraction")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		return s.exponent()
	}
	return nil
}

func (s *scanner) digits() int {
	n := 0
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.pos++
		n++
	}
	return n
}

// exponent bounds what a few written bytes may become: 1e200000 is short here and 200,000 digits in PostgreSQL.
func (s *scanner) exponent() *Reject {
	s.pos++
	if c := s.peek(); c == '+' || c == '-' {
		s.pos++
	}
	start := s.pos
	if s.digits() == 0 {
		return s.syntax("bad exponent")
	}
	magnitude := 0
	for _, c := range s.doc.src[start:s.pos] {
		magnitude = min(magnitude*10+int(c-'0'), 1<<20)
	}
	if magnitude > s.lim.Exponent {
		return reject(ReasonNumberRange, "", "exponent at byte %d exceeds %d", start, s.lim.Exponent)
	}
	return nil
}
