package devicestate

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
)

// smallObject is how many members are compared by hash, pair by pair; above it a map is cheaper.
const smallObject = 48

// checkKeys refuses an object in which a key stands twice, also in another case or escaped: PostgreSQL keeps the last,
// Go's decoder folds case, others keep the first, so two readers would see two truths.
func (s *scanner) checkKeys(object int) *Reject {
	values := s.doc.values
	var small [smallObject]struct{ hash, member uint32 }
	n := 0
	for i := object + 1; i < len(values); i = int(values[i].end) {
		if n == smallObject {
			return s.checkManyKeys(object)
		}
		key := s.doc.rawKey(&values[i])
		hash := foldedHash(key)
		for _, other := range small[:n] {
			if other.hash == hash && bytes.EqualFold(key, s.doc.rawKey(&values[other.member])) {
				return s.duplicateKey()
			}
		}
		small[n].hash, small[n].member = hash, uint32(i)
		n++
	}
	return nil
}

func (s *scanner) checkManyKeys(object int) *Reject {
	values := s.doc.values
	seen := make(map[string]struct{})
	for i := object + 1; i < len(values); i = int(values[i].end) {
		folded := strings.Map(foldRune, string(s.doc.rawKey(&values[i])))
		if _, ok := seen[folded]; ok {
			return s.duplicateKey()
		}
		seen[folded] = struct{}{}
	}
	return nil
}

// foldedHash is the same for all keys that bytes.EqualFold takes for equal (FNV-1a over the folded key). An ASCII letter
// folds to upper case, which is the smallest of its kind.
func foldedHash(key []byte) uint32 {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, c := range key {
		if c >= 0x80 {
			return foldedHash([]byte(asciiOnly(strings.Map(foldRune, string(key)))))
		}
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		h = (h ^ uint32(c)) * prime
	}
	return h
}

// asciiOnly spells other runes as numbers.
func asciiOnly(s string) string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		if r < 0x80 {
			b = append(b, byte(r))
			continue
		}
		b = append(b, '\\')
		b = strconv.AppendInt(b, int64(r), 10)
	}
	return string(b)
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
