// Package peers measures what else a user could pick, on the same rows into the same Kafka: Debezium with its outbox
// event router in Kafka Connect. Both start on a full outbox; what counts is how fast the topic fills, what each process
// costs meanwhile, and whether each device's events are in order.
//
// The settings of the peer are in debezium.go. They are meant to be fair: its slot is made before the rows, it reads
// through the partitioned root, passes bytes through without converting them, and has the batch and queue sizes that
// made it fastest.
package peers
