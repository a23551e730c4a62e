#!/usr/bin/env python3
"""Read DeviceStateChanged events with Kafka's ordinary client and give each its effect once.

    python3 consume.py BROKERS TOPIC GROUP [--until-end]

An event is plain CloudEvents in Kafka's binary mode: JSON in the value, ce_ headers beside it. What makes the effect
happen once is not the broker but the gate below: per (device, stream) it remembers the last (epoch, sequence) and drops
what is not above it. Here the positions live in memory, so a restart begins with baselines; a real consumer stores them
in the same transaction as the effect.
"""
import json
import sys

from confluent_kafka import Consumer, KafkaError


class Gate:
    """The last (epoch, sequence) seen of each stream."""

    def __init__(self):
        self.seen = {}

    def check(self, stream, epoch, sequence, skipped):
        """Return what to do with an event, and which sequences are missing without an explanation."""
        last, this = self.seen.get(stream), (epoch, sequence)
        if last is not None and this <= last:
            return ("duplicate" if this == last else "late"), []
        self.seen[stream] = this
        if last is None:
            return "baseline", []
        if epoch > last[0]:
            return "new_epoch", []
        lost = [n for n in range(last[1] + 1, sequence) if not any(a <= n <= b for a, b in skipped)]
        return ("hole" if sequence > last[1] + 1 else "apply"), lost


def ranges(header):
    """Read ce_skipped, "41-57:superseded,58:dead": what the relay left out on purpose."""
    found = []
    for part in filter(None, header.split(",")):
        first, _, last = part.split(":")[0].partition("-")
        found.append((int(first), int(last or first)))
    return found


def handle(gate, message):
    headers = {name: value.decode() for name, value in message.headers() or []}
    if headers.get("ce_type") != "DeviceStateChanged" or headers.get("ce_schemaversion") != "1":
        raise ValueError(f"{message.topic()}/{message.partition()}@{message.offset()} is not for this program")
    event = json.loads(message.value())
    stream = (event["device_id"], event["stream"])
    verdict, lost = gate.check(stream, event["epoch"], event["sequence"], ranges(headers.get("ce_skipped", "")))
    # The effect would be here, for every verdict but duplicate and late. A loss is counted and alarmed, never waited for.
    print(json.dumps({"device": stream[0], "stream": stream[1], "epoch": event["epoch"], "sequence": event["sequence"],
                      "verdict": verdict, "lost": lost}), flush=True)


def main(brokers, topic, group, until_end):
    consumer = Consumer({
        "bootstrap.servers": brokers, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "enable.partition.eof": until_end,
    })
    consumer.subscribe([topic])
    gate, ended = Gate(), set()
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(message.error())
            ended.add(message.partition())
            if ended >= {p.partition for p in consumer.assignment()}:
                break
            continue
        handle(gate, message)
        consumer.commit(message, asynchronous=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:4], until_end="--until-end" in sys.argv[4:])
