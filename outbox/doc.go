// Package outbox is a transactional outbox over PostgreSQL: messages are appended in the transaction that changes the
// state they tell of, and relays publish them to Kafka in order. It knows nothing about devices.
//
// # Model
//
//	key ──murmur2──▶ bucket ──mod partitions──▶ Kafka partition
//
//	outbox         append-only log, one total order per bucket (position)
//	outbox_bucket  one cursor per bucket, one owner, one term
//	outbox_dead    rows that left the order, whole
//	outbox_skipped ranges of a stream's sequence that were left out, until an event has carried them
//
// No row of outbox is ever updated or deleted: its fate is told by the cursor and the two other tables. A status column
// costs thirteen times the CPU and bloats under any held snapshot (docs/decisions).
//
// # Order, from the insert to the topic
//
// O1. A position is taken at INSERT and becomes visible at COMMIT, so a reader with a cursor would pass a slow
// transaction's rows. Therefore an appender takes the advisory lock of the bucket before the first position (Txn.Begin):
// positions of a bucket become visible in the order in which they were taken. Whatever the appender reads to decide the
// messages is a statement after the lock, never the same one: that would see the snapshot from before the wait.
//
// O2. Within a Kafka partition at most one group, one produce batch, is outstanding. Checking a flag before each submit
// is not enough: callbacks are asynchronous, later records were acknowledged after an earlier one had failed, and sending
// the failed one again is silent loss, because every consumer's gate drops it. After a failure the acknowledged prefix
// counts, the topic is asked what else arrived, and the search for the guilty row halves the group until a row is alone.
// Only the error of a row alone in its batch is that row's. A row that was overtaken all the same becomes dead with code
// OVERTAKEN, and alarms.
//
// # Ownership
//
//	        claim (term+1)              lease trusted
//	free ───────────────────▶ checking ───────────────▶ active ──▶ releasing ──▶ free
//	 ▲                            │ tail unknown to          │
//	 │ lease ran out              ▼ the database             │ another term (loud)
//	 └──────────────────────── halted (until rebase)         ▼ dropped
//
// O3. Each instance renews one lease row on a session of its own. Buckets name owner and term, every write of a cursor
// carries both, and zero rows mean: drop the bucket at once. A lease is trusted locally from before the renewal was sent,
// minus a margin, on the monotonic clock: a process that was stopped finds it over when it wakes. What such a zombie still
// had on the wire reaches the topic as duplicates, never as loss or a reordering of first deliveries, because each owner
// alone sends in order and starts at or before the first row that is not on the topic.
//
// At claim the newest record of the bucket on the topic is compared with the stored row. The same and above the cursor:
// the cursor moves there, and a crash leaves no duplicates. No such row, or another message: the database has lost a past
// that was published, so the bucket halts until `relay rebase`. Only Kafka can tell that.
//
// # Fates (O4, O5)
//
//	published   the broker acknowledged it (acks=all); the cursor covers it
//	superseded  a newer row of its stream stood in the backlog; outbox_skipped says so before the newer one is sent
//	dead        it can never be sent; outbox_dead, outbox_skipped and the cursor move in one transaction
//	held        parked behind a dead row of its key (OnDead hold); outbox_dead and the cursor move in one transaction
//	pending     none of these: it is above the cursor
//
// An event that follows a skipped range carries it in ce_skipped, so that a consumer tells a policy from a loss. The range
// is obeyed by every later owner and forgotten with the cursor write that covers the event.
//
// # Failures
//
//	broker away, no leader      outage: breaker opens, no row attempt is spent, nothing dies (O6)
//	partition without leader    only its buckets stall; franz-go never fails such a record, so nobody waits for it
//	record refused              alone: permanent dies, unknown is retried with backoff up to its limits
//	relay killed                lease runs out, next owner asks the topic, goes on
//	relay stopped and resumed   finds its lease over, then its terms stale; changes nothing
//	cursor write lost           written again: it says the same
//	database away               no renewal, so publishing stops before the lease ends
//	database restored           tail check halts the buckets whose past is gone
package outbox
