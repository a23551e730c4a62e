package ingest

import (
	"testing"
)

func tailItem(g *generation, id int, hash uint64, dup bool) item {
	return item{gen: g, id: uint16(id), hash: hash, qos: 1, dup: dup}
}

func tailGeneration(n uint64, present bool) *generation {
	g := newGeneration(n)
	g.present.Store(present)
	g.answered.Store(true)
	return g
}

// commit brings items through the tail as the writer does, and says which were recognised.
func (t *tail) commit(items ...item) []bool {
	t.prepare(items)
	var known []bool
	for i := range items {
		known = append(known, t.redelivered(&items[i]))
	}
	t.committed(items)
	return known
}

func TestTail_KnowsTheCopiesOfAResumedSession(t *testing.T) {
	t.Parallel()
	var tl tail
	g1, g2 := tailGeneration(1, true), tailGeneration(2, true)
	tl.commit(tailItem(g1, 1, 11, false), tailItem(g1, 2, 22, false), tailItem(g1, 3, 33, false))
	got := tl.commit(tailItem(g2, 2, 22, true), tailItem(g2, 3, 33, false), tailItem(g2, 4, 44, true), tailItem(g2, 1, 99, true))
	for i, want := range []bool{true, true, false, false} { // known; known without the mark; never committed; the id with other bytes
		if got[i] != want {
			t.Errorf("copy %d: recognised %v, want %v", i, got[i], want)
		}
	}
	tl.commit(tailItem(g2, 5, 55, false)) // new: the resumed prefix is over
	if tl.commit(tailItem(g2, 1, 11, false))[0] {
		t.Error("an id that the broker uses again is taken for a copy")
	}
}

func TestTail_IsAsLongAsWhatTheBrokerHasNotConfirmed(t *testing.T) {
	t.Parallel()
	var tl tail
	g := tailGeneration(1, true)
	for i := range 1000 {
		tl.commit(tailItem(g, i, uint64(i), false))
		g.confirmed.Store(uint64(i)) // all but the last
	}
	if n := len(tl.current); n > 2 {
		t.Errorf("%d entries, want what is not confirmed", n)
	}
	encoded := tl.with(nil, []item{tailItem(g, 1000, 1000, false)})
	back, err := loadTail(encoded)
	if err != nil || len(back.before) != len(tl.current)+1 {
		t.Errorf("%d entries come back of %d, %v", len(back.before), len(tl.current)+1, err)
	}
	if _, err := loadTail(append(encoded, 1)); err == nil {
		t.Error("a torn tail was read")
	}
}

// A broker that lost the session starts its packet ids again: nothing of before may be recognised. Also when the new
// session was made on a connection that broke before it delivered anything.
func TestTail_IsForgottenWithTheSession(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]*generation{"not present": tailGeneration(2, false), "present after a broken one": func() *generation {
		g := tailGeneration(3, true)
		g.fresh = true
		return g
	}()} {
		var tl tail
		tl.commit(tailItem(tailGeneration(1, true), 1, 11, false))
		if tl.commit(tailItem(next, 1, 11, true))[0] {
			t.Errorf("%s: recognised", name)
		}
	}
}
