// Package witness reads what a run left behind: the tables of PostgreSQL, the whole Kafka topic and the positions in a
// consumer's store. It has its own statements and its own decoder, and tells the oracle what it saw without judging it.
package witness
