//go:build mutant

package outbox

import (
	"math/rand/v2"
	"testing"

	"github.com/hubstate/hubstate/internal/mutant"
)

// Each mutant switches one guarantee off; the histories must notice within 1,000 steps. Run with
//
//	go test -tags mutant ./outbox -run TestModel_NoticesMutants
func TestModel_NoticesMutants(t *testing.T) {
	for _, name := range []string{MutantNoBucketLock, MutantCursorBeforeAck, MutantNoTermCheck, MutantSubmitEarly, MutantStepOver, MutantForgetSkips} {
		t.Run(name, func(t *testing.T) {
			mutant.Set(name)
			defer mutant.Set()
			total := 0
			for total < 1000 {
				seed := rand.Uint64() >> 33
				steps, err := history(t, seed)
				total += len(steps)
				if err != nil {
					t.Logf("noticed after %d steps (seed %d): %v", total, seed, err)
					return
				}
			}
			t.Errorf("not noticed in %d steps", total)
		})
	}
}
