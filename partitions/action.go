package partitions

import (
	"fmt"
	"time"
)

// Kind says what an Action does.
type Kind string

// The kinds, in the order in which a plan has them: first what writers need, last what frees space.
const (
	Finalize Kind = "finalize" // end a concurrent detach that was interrupted
	Forget   Kind = "forget"   // take a table that is gone off the ledger
	Adopt    Kind = "adopt"    // enter an attached table that the ledger does not know
	Discard  Kind = "discard"  // drop a runway table that never held a row
	Create   Kind = "create"   // make a stand-alone table for a range
	Attach   Kind = "attach"   // make it part of the parent
	Seal     Kind = "seal"     // close its range, take it out of the parent, move it to the history
	Shelve   Kind = "shelve"   // move a sealed table that stands alone to the history
	Archive  Kind = "archive"  // write, read back and record its archive
	Drop     Kind = "drop"     // drop the table, after its archive was verified again
	Expire   Kind = "expire"   // delete rows of a subject by age
	Wait     Kind = "wait"     // do nothing; the reason says for what
)

// Action is one step of a plan. Each is idempotent and leaves the ledger telling what was done.
type Action struct {
	Kind      Kind      `json:"action"`
	Partition string    `json:"partition,omitempty"` // table name; empty for Expire
	From      time.Time `json:"from,omitzero"`       // range of the partition
	To        time.Time `json:"to,omitzero"`
	Subject   string    `json:"subject,omitempty"` // Expire: what to delete
	Before    time.Time `json:"before,omitzero"`   // Expire: rows older than this
	Reason    string    `json:"reason"`            // for people
}

// String is the action as one line.
func (a Action) String() string {
	if a.Kind == Expire {
		return fmt.Sprintf("%-8s %s before %s: %s", a.Kind, a.Subject, stamp(a.Before), a.Reason)
	}
	return fmt.Sprintf("%-8s %s %s: %s", a.Kind, a.Partition, span{a.From, a.To}, a.Reason)
}

// waits is a as a wait for why.
func (a Action) waits(why string) Action {
	a.Kind, a.Reason = Wait, why
	return a
}

// Phase is where a partition stands in its life.
type Phase string

// The phases, in order. A table never moves back, except from archived to sealed when its archive turns out damaged.
const (
	Ahead    Phase = "ahead"    // stands alone, empty, ready
	Live     Phase = "live"     // attached; rows may arrive
	Sealing  Phase = "sealing"  // its range is closed: no row can arrive; still attached, or just detached
	Sealed   Phase = "sealed"   // in the history; every row of it is decided
	Archived Phase = "archived" // the same, and a verified archive exists
	Dropped  Phase = "dropped"  // the table is gone
)

// Place is where the database has a table.
type Place string

// The places. Absent is the zero value: the ledger names a table that does not exist.
const (
	Absent         Place = ""
	Alone          Place = "alone"
	Attached       Place = "attached"
	Detaching      Place = "detaching" // a concurrent detach from the parent was interrupted
	History        Place = "history"
	LeavingHistory Place = "leaving history" // the same, from the history
)

// Partition is what ledger and database say about one table.
type Partition struct {
	Name          string    `json:"partition"`
	From          time.Time `json:"from"`
	To            time.Time `json:"to"`
	Phase         Phase     `json:"phase"` // empty: not in the ledger
	Place         Place     `json:"place"`
	Bytes         int64     `json:"bytes"` // as it stands; for one that was dropped, when it was sealed
	Rows          *int64    `json:"rows"`  // counted when sealed
	Archive       string    `json:"archive,omitempty"`
	SHA256        string    `json:"sha256,omitempty"`
	Attempts      int       `json:"attempts,omitempty"` // failures since the last step that succeeded
	LastError     string    `json:"last_error,omitempty"`
	NextAttemptAt time.Time `json:"next_attempt_at,omitzero"`
	SealedAt      time.Time `json:"sealed_at,omitzero"`
	ArchivedAt    time.Time `json:"archived_at,omitzero"`
	DroppedAt     time.Time `json:"dropped_at,omitzero"`
	// Undrained says why rows of an ended, attached partition are still needed; empty when none is.
	Undrained string `json:"undrained,omitempty"`
}

func (p *Partition) span() span               { return span{p.From, p.To} }
func (p *Partition) endedAt(t time.Time) bool { return p.span().endedAt(t) }

// fixed reports that the range of p may hold rows and can no longer be changed.
func (p *Partition) fixed() bool {
	return p.Place == Attached || p.Place == Detaching || p.Phase != Ahead && p.Phase != "" && p.Phase != Dropped
}

// State is all that Plan judges by: partition_spec, partition_ledger and the system catalogue of one moment.
type State struct {
	Floor       time.Time   // no row is created before it; zero: none yet
	TickedAt    time.Time   // the last complete turn of any maintainer; zero: none yet
	SteadySince time.Time   // since when the server's clock has run without a jump
	ExpiredAt   time.Time   // the last turn that deleted by age
	Partitions  []Partition // by From; those long dropped are left out
}
