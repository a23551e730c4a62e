// Package peers measures what else a user could pick, on the same rows into the same Kafka: Debezium with its outbox
// event router in Kafka Connect, and watermill-sql with its router and Kafka publisher. Each runs in a process of its own,
// alone, in three situations:
//
//   - a full outbox: how fast the topic fills, and what every process costs meanwhile;
//   - light load: single rows, each in a transaction of its own, and how long until a consumer has them;
//   - kill -9: the process is killed three times amid a backlog; what is then lost, repeated or out of order.
//
// The settings of the peers are in debezium.go and watermill/main.go. They are meant to be fair. Debezium's slot is made
// before the rows; it reads through the partitioned root, passes bytes through without converting them, and has the batch
// and queue sizes that made it fastest. watermill-sql reads from a table of its own, since it cannot read ours, which is
// filled with the same rows in transactions of the same size; it gets fewer of them because it is slow, and because what
// one of its queries costs grows with the backlog: fewer favours it.
package peers
