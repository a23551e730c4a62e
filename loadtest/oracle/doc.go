// Package oracle decides whether a run was correct. It compares four things that know nothing of each other: the
// ledger of what devices sent and brokers acknowledged, the tables of PostgreSQL, the whole Kafka topic, and what a
// consumer applied.
//
// It shares no deciding code with the product: it does not import the product's domain, outbox or gate, reads tables
// with its own statements and records with its own decoder, and what a report must become is known from what the fleet
// meant when it made it, not from a rule applied afterwards.
//
// # What must hold
//
//   - An acknowledged report that moves state is an event: once, in the device's order, with the state it carried.
//     If the broker itself was hurt and the report never reached ingest, it must lie in a recorded gap instead.
//   - An acknowledged report that cannot be used is in quarantine; one that says nothing new is counted.
//   - The sequence of each stream's events is dense. Each is on the topic, byte for byte; first deliveries in order;
//     what is missing is explained by ce_skipped; nothing is there that the database does not know.
//   - A consumer applied each event once, in order.
//   - Database, topic and consumer end with the same last event of each stream.
//   - The class columns add up.
//
// Check is pure. It is itself tested by mutating a correct history in each of these ways.
package oracle
