package devicestate

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
)

// smallObject is how many members are compared pair by pair; above it a map is cheaper.
const smallObject = 12

// checkKeys refuses an object in which a key stands twice, also in another case or escaped: PostgreSQL keeps the last,
// Go's decoder folds case, others keep the first, so two readers would see two truths.
func (s *scanner) checkKeys(object int) *Reject {
	values := s.doc.values
	var small [smallObject][]byte
	keys := small[:0]
	for i := object + 1; i < len(values); i = int(values[i].end) {
		keys = append(keys, s.doc.rawKey(&values[i]))
	}
	if len(keys) > smallObject {
		return s.checkManyKeys(keys)
	}
	for i, k := range keys {
		for _, other := range keys[:i] {
			if bytes.EqualFold(k, other) {
				return s.duplicateKey()
			}
		}
	}
	return nil
}

func (s *scanner) checkManyKeys(keys [][]byte) *Reject {
	seen := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		folded := strings.Map(foldRune, string(k))
		if _, ok := seen[folded]; ok {
			return s.duplicateKey()
		}
		seen[folded] = struct{}{}
	}
	return nil
}

func (s *scanner) duplicateKey() *Reject {
	return reject(ReasonDuplicateKey, "", "a key stands twice or in two cases, in the object that ends at byte %d", s.pos)
}

// foldRune maps all runes that bytes.EqualFold takes for the same to the smallest of them.
func foldRune(r rune) rune {
	for {
		next := unicode.SimpleFold(r)
		if next <= r {
			return next
		}
		r = next
	}
}

// rawKey returns the member's key unescaped; it allocates only when the key holds escapes.
func (d *document) rawKey(v *value) []byte {
	if !v.keyEscaped {
		return d.src[v.keyStart:v.keyEnd]
	}
	return []byte(unquote(d.src[v.keyStart-1 : v.keyEnd+1]))
}

// unquote decodes a string that scan has already validated, so it cannot fail.
func unquote(quoted []byte) string {
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return string(quoted)
	}
	return s
}

// find returns the index of the value at path below the top object, or -1.
func (d *document) find(path []string) int {
	root := 0
	for _, name := range path {
		if root < 0 || d.values[root].kind != '{' {
			return -1
		}
		root = d.member(root, name)
	}
	return root
}

func (d *document) member(object int, name string) int {
	for i := object + 1; i < int(d.values[object].end); i = int(d.values[i].end) {
		if string(d.rawKey(&d.values[i])) == name {
			return i
		}
	}
	return -1
}

// text returns the raw bytes of a value.
func (d *document) text(i int) []byte { return d.src[d.values[i].start:d.values[i].stop] }

// str returns a string value decoded; ok is false for other kinds.
func (d *document) str(i int) (string, bool) {
	if i < 0 || d.values[i].kind != '"' {
		return "", false
	}
	raw := d.text(i)
	for _, c := range raw {
		if c == '\\' {
			return unquote(raw), true
		}
	}
	return string(raw[1 : len(raw)-1]), true
}
