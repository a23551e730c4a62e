package outbox

import (
	"slices"
	"time"
)

// fairShare is how many of buckets the instance should own when live instances (sorted) share them: the first ones in
// order take what does not divide, so that all shares add up and every instance computes the same answer.
func fairShare(buckets int, live []string, me string) int {
	i := slices.Index(live, me)
	if i < 0 {
		return 0
	}
	share := buckets / len(live)
	if i < buckets%len(live) {
		share++
	}
	return share
}

// trust is until when a lease may be relied on: counted from before the renewal was sent, because the database may have
// granted it at any moment after that, minus a margin for clock rates and for what is on its way to the broker.
func trust(sentAt time.Time, ttl, margin time.Duration) time.Time { return sentAt.Add(ttl - margin) }
