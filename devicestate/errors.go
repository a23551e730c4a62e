package devicestate

import "fmt"

// Reason is the stable code of a rejection, stored in ingest_reject.reason and used as a metric label.
type Reason string

// The reasons a report can be quarantined for.
const (
	ReasonNoProfile      Reason = "no_profile"      // no topic rule matches
	ReasonBadID          Reason = "bad_id"          // an id level is empty, too long or has a forbidden character
	ReasonUnknownStream  Reason = "unknown_stream"  // the profile names no policy for the stream
	ReasonTooLarge       Reason = "too_large"       // payload above the limit
	ReasonEmpty          Reason = "empty"           // payload of zero bytes
	ReasonNotJSON        Reason = "not_json"        // syntax error
	ReasonNotObject      Reason = "not_object"      // valid JSON, but not an object
	ReasonInvalidUTF8    Reason = "invalid_utf8"    // a string is not UTF-8
	ReasonNullCharacter  Reason = "null_character"  // \u0000: PostgreSQL text cannot hold it
	ReasonLoneSurrogate  Reason = "lone_surrogate"  // half of a UTF-16 pair
	ReasonDuplicateKey   Reason = "duplicate_key"   // the same key twice, or two keys that differ only in case
	ReasonTooDeep        Reason = "too_deep"        // nesting above the limit
	ReasonNumberRange    Reason = "number_range"    // exponent above the limit
	ReasonCounterMissing Reason = "counter_missing" // required and absent or null
	ReasonCounterInvalid Reason = "counter_invalid" // not an integer in 0..2^63-1
	ReasonBootInvalid    Reason = "boot_invalid"    // not an integer in 0..2^63-1
	ReasonStateMissing   Reason = "state_missing"   // the configured state member is absent or null
	ReasonConflict       Reason = "conflict"        // same counter, other content, time not newer
	ReasonHubConflict    Reason = "hub_conflict"    // a known device reports from another hub
	ReasonDatabase       Reason = "database"        // the database refused this report; detail has the SQLSTATE
)

// Reject says why a report cannot be applied. It is data about the report, never a failure of the service.
type Reject struct {
	Reason Reason
	Field  string // path in the payload, or "topic"; empty when the whole payload is meant
	Detail string // what was found and the limit; never the payload itself
}

func (r *Reject) Error() string {
	if r.Field == "" {
		return fmt.Sprintf("%s: %s", r.Reason, r.Detail)
	}
	return fmt.Sprintf("%s: %s: %s", r.Reason, r.Field, r.Detail)
}

func reject(reason Reason, field, format string, args ...any) *Reject {
	return &Reject{Reason: reason, Field: field, Detail: fmt.Sprintf(format, args...)}
}
