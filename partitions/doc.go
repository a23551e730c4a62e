// Package partitions keeps the time partitions of one PostgreSQL table: made ahead, sealed when nothing in them is needed
// any more, archived with proof, dropped whole. It knows nothing about what the rows mean: whether a row is still needed
// is a function handed in (Guard), and so is the way to wait for writers (Barrier).
//
// # Life of a partition
//
//	         create            attach              seal                  archive             drop
//	 (none) ───────▶ ahead ───────────▶ live ─▶ sealing ─▶ sealed ───────────────▶ archived ─────▶ dropped
//	                   │ discard                    │                  ▲                │
//	                   ▼                            │ undecided rows   └────────────────┘
//	                 (none)                         ▼ in a detached    damaged archive, or rows erased
//	                                           attached again table
//
//	ahead     a stand-alone table with a CHECK that repeats its range. Nobody sees it.
//	live      attached to the parent. Only the current one and the next two are: a poll through a parent with a whole
//	          runway attached is many times slower.
//	sealing   its range is closed: no row can be created in it any more. It is still attached, or was just detached.
//	sealed    every row of it is decided. It is part of the history table, out of the relay's way and one query away.
//	archived  the same, and a Parquet file with a manifest was written, read back and compared.
//	dropped   the table is gone; the ledger and the archive stay.
//
// The ledger (partition_ledger) tells the phase, the times and the numbers; the catalogue tells where a table is. Plan
// judges by both: what one says and the other does not is work that an interrupted turn, or a hand, left behind.
//
// # Floor
//
// The writer's created_at is greatest(clock_timestamp(), floor), the floor read after the writer's locks. To seal a
// partition the floor is raised to its end. From then on no clock can put a row into it, and a clock that steps back puts
// its rows at the floor, into the partition that is current, instead of into ranges that are gone. A clock that steps
// forward meets no attached partition: the writer calls ensure_partition and goes on. When the clock comes back, what was
// attached stays attached and is sealed in its time. The floor never falls.
//
// # Invariants
//
//	I1  The ranges of one parent's partitions never overlap, whatever interval they were made with; ensure_partition and
//	    Plan cut a slot of the grid in the same way (a test compares them).
//	I2  A row that can be created has an attached partition, or gets one from ensure_partition (P1).
//	I3  A partition is detached only after: floor at or above its end, committed; then every writer from before has
//	    ended; then the guard says that every row is decided (P2). seal.go tells what happens in any other order.
//	I4  A table is dropped only when the guard still agrees and, with a store, after its archive was read back again.
//	I5  Every step can be done again. What is one transaction is all or nothing; DETACH CONCURRENTLY, which is not, is
//	    found pending and finalized; a file has its name only when it is complete and durable.
//	I6  No lock is waited for longer than LockTimeout, and none that readers or writers of the parent feel is taken:
//	    stand-alone CREATE and ATTACH, DETACH CONCURRENTLY. (A default partition would forbid the latter: there is none.)
//
// # When things fail
//
//	maintainer killed at any point    the next one finishes; TestKill tries each point
//	maintainer stopped (SIGSTOP)      its session ends by idle timeouts, another takes the lead
//	long reader or open cursor        the detach waits, the log names the session; nobody else waits
//	idle or stalled bucket            holds the partitions that have rows of it, and no other
//	clock jumps, long stop            nothing is sealed, dropped or deleted by age before the clock ran steadily for Settle
//	disk full, directory gone         the table stays however old, the failure is counted and tried again, later and later
//	archive damaged                   seen before the drop; the table is archived anew. After the drop: verify tells
//	detached or dropped by hand       attached again when rows are undecided; taken off the ledger, loudly
//
// # Reading order
//
// plan.go decides, purely; turn.go carries a plan out; seal.go, ddl.go and archive.go are the steps; column.go and
// rowfile.go are the way of a value between PostgreSQL and Parquet, exact in both directions; manager.go is the loop.
package partitions
