// Package consumer reads DeviceStateChanged events so that each has its effect once and a missing one is noticed.
//
// Delivery on the topic is at least once: a record may come twice, an operator may replay an old one. This package keeps,
// per (device, stream), the last (epoch, sequence) it has seen, drops what is not above it, and reports the sequences that
// are missing in between. It knows nothing of MQTT, of the outbox or of what your handler does.
//
//	c, err := consumer.New(consumer.Config{
//		Brokers: []string{"kafka:9092"},
//		Group:   "maintenance",
//		Store:   consumer.NewPostgresStore(pool, "maintenance", handle), // func(ctx, tx pgx.Tx, deliveries []*consumer.Delivery) error
//		Poison:  consumer.DeadLetterTo("device-state.maintenance.dead"),
//	})
//	if err != nil { … }
//	err = c.Run(ctx) // until ctx is done
//
// # The loop
//
//	poll → per partition in order: decode → gate → handle + advance → commit offsets
//
// Partitions run in parallel, at most Config.Concurrency batches at a time; inside a partition everything is in order. A
// batch is what has queued up since the previous one of its partition ended, so it is small when traffic is light and
// large when it is heavy. What is queued is bounded: a partition above its bound is paused at the broker.
//
// # Where the effect goes decides what is promised
//
//	effect                                  store             promise
//	in the handler's pgx.Tx                 PostgresStore     once (C1): effect, position and offset commit together
//	Effects inside the Redis script         RedisStore        once (C1): effect, position and offset in one atomic script
//	Config.Handler, anything else           any               at least once: a crash between handling and advancing repeats
//	Config.Handler                          MemoryStore       at least once while it runs; a restart forgets all positions, so
//	                                                          the first event of each stream is a baseline again
//
// In all of them the position of a stream never moves back while its store lives, and the effects of one stream happen in
// order.
//
// # The verdicts
//
// Each delivery carries a devicestate.Verdict. Apply, Baseline (the first event seen of its stream: nothing is known of what
// was before, so nothing is missing), NewEpoch and Hole are handled; Again and Old are dropped and counted. Verdict.Missing
// is the range between the last seen sequence and this one; Verdict.Lost what of it no ce_skipped header explains: loss
// inside the pipeline. A hole is never waited for. Config.OnHole is told device, stream and ranges of each.
//
// On a compacted topic the broker itself removes records, by key, which is the device: a hole proves nothing there. It is
// reported with Compacted set and without Lost.
//
// # When the store forgets
//
// A store keeps, in the same transaction as the positions, the offset up to which each partition was processed. A Redis that
// was flushed, or came back from a crash without its last second, or a PostgreSQL restored from yesterday then shows an older
// offset than the one it confirmed; the consumer notices, reads the partition again from there (from its start, when
// nothing is left) and rebuilds. Those deliveries carry Delivery.Rebuild: do not measure delays with them.
//
// # Effects inside the Redis script
//
// RedisConfig.Effects is called once per delivery, before the gate is asked, and says what is to be written if it passes;
// the script gates and writes, atomically, in one round trip for the whole batch. It must be pure: it may be called
// for a delivery that is then dropped, and again after an error.
//
//	store := consumer.NewRedisStore(consumer.RedisConfig{
//		Client: client,
//		Name:   "monitor", // all keys of the store begin with {monitor}: ; put yours there too, for Redis Cluster
//		Effects: func(fx *consumer.Effects, d *consumer.Delivery) {
//			fx.HSet("{monitor}:state", d.Event.Device+"/"+d.Event.Stream, d.Event.State)
//			fx.ZAdd("{monitor}:received:"+d.Event.Hub, float64(d.Event.ReceivedAt.UnixMilli()), d.Event.Device)
//			fx.Do("HINCRBY", "{monitor}:count", d.Event.Hub, 1) // any other write command: name, key, arguments
//		},
//		HoleLimit: 10000, // the last holes, recorded by the same script; read them with RedisStore.Holes
//	})
//
// HSet and ZAdd of the same key are sent as one command with many pairs, which is what makes a batch cheap. The order of
// writes to one key is kept. Config.Observe sees every delivery with its verdict after the batch is stored.
//
// # Errors
//
// A record that cannot be decoded, and an event whose handler fails for good, follow Config.Poison: to a dead-letter topic
// with the reason in its headers, or Run stops and returns a *PoisonError. A handler's error is retried with backoff up to
// Config.Retry; Permanent(err) is not retried, Outage(err) is retried without end and spends nothing. Errors of the store
// and of Kafka are outages.
package consumer
