// Package ingest takes device reports from MQTT into PostgreSQL: state and event in one transaction, acknowledged after
// its commit.
//
// # The loop of a lane
//
//	take the queue → lock buckets in order → read stored → Next for each → upsert + append + gaps + rejects → commit → ack in order
//
// A lane is one MQTT session with a stable client id, and a row of ingest_lane that says who owns it under which term.
// Its parts, in the order in which a message meets them:
//
//	conn        takes PUBLISH packets out of the stream, right where they are read
//	decoder     topic → route, payload → report; what cannot be read becomes a reject
//	queue       bounded by count and bytes; a refusal ends the connection (generation)
//	tail        recognises copies of what was committed and perhaps not acknowledged
//	batch       groups by stream, decides (devicestate.Fold), makes the rows of all statements
//	known       rows the lane wrote last: checked when they are written, instead of read before
//	writer      two round trips; retries; isolates a report that the database refuses
//	acks        PUBACKs in order of arrival, one write a batch, behind them a ping that shortens the tail
//
// # Why nothing is lost, and nothing is applied twice
//
// The broker owns a message until its PUBACK, and the PUBACK leaves after COMMIT (N1). What is between is at most a queue
// and a batch (N3): when the queue is full the connection is dropped and nothing more of it is accepted, because accepting
// message n+1 after refusing n makes the redelivered n late.
//
// A COMMIT whose answer was lost is decided by the lane's row: it holds the number of the last committed batch, is locked
// at the start of every transaction, and a second try that finds its own number there has committed already.
//
// A redelivered copy is told by its counter; for streams without one, and for last wills, by the tail, which is stored in
// the lane's row together with the batch.
//
// An ingester that slept through its lease finds another term in the row and commits nothing. The server ends its open
// transaction after 5 s, so its bucket locks are free again.
//
// # What reaches nobody
//
// Reports that never reached us show as gaps of the device's own counter (stream_gap). Where no counter can tell (a
// session that the broker forgot, QoS 0 on a connection that broke, a broker that says it dropped) the window is recorded
// in possible_gap.
package ingest
