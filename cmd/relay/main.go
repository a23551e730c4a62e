// Command relay publishes the outbox to Kafka and is the operator's tool for everything between the two: it migrates the
// database, shows what is published and what is not, and decides about rows that could not be.
//
// One file per command. What changes data is a dry run unless told otherwise, is done in the role of the part that owns
// the data, and is written into the table audit.
package main

import "github.com/hubstate/hubstate/internal/ops"

func main() { ops.Main(newRoot()) }
