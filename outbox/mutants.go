package outbox

// The guarantees that a build with the tag `mutant` can switch off one by one, to prove that the tests and the oracle of
// loadtest notice. Ordinary builds cannot.
const (
	MutantNoBucketLock    = "no_bucket_lock"    // O1: positions become visible out of order
	MutantCursorBeforeAck = "cursor_before_ack" // O4: a crash loses what was on the wire
	MutantNoTermCheck     = "no_term_check"     // O3: a stale owner moves the cursor
	MutantSubmitEarly     = "submit_early"      // O2: the next batch is sent while one is open
	MutantStepOver        = "step_over"         // O5: a failed record counts as acknowledged
	MutantForgetSkips     = "forget_skips"      // O2, C2: a hand-over forgets what was superseded
)
