"""Kafka 4's consumer groups (KIP-848): a second member comes and goes, and the first one never stops reading."""

from confluent_kafka import Consumer

import pykbroker

PARTITIONS = 4


def join(broker, name):
    """A member of the group by the new protocol; the broker shares the partitions out."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "shop",
            "client.id": name,
            "group.protocol": "consumer",
            "group.remote.assignor": "uniform",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    return consumer


def poll_until(members, counts, seen):
    """Polls the members until they have so many partitions each; adds what they read to `seen`."""
    while [len(member.assignment()) for member in members] != counts:
        for member in members:
            message = member.poll(0.1)
            if message is not None and not message.error():
                seen.append(message.value().decode())


def main():
    # Members hear of changes by their heartbeats: every five seconds, unless the broker says otherwise.
    config = {"group.consumer.min.heartbeat.interval.ms": 200, "group.consumer.heartbeat.interval.ms": 200}
    with pykbroker.LocalBroker(topics={"orders": PARTITIONS}, config=config) as broker:
        seen = []
        first = join(broker, "first")
        poll_until([first], [4], seen)
        print("alone:", len(first.assignment()), "partitions")

        second = join(broker, "second")
        poll_until([first, second], [2, 2], seen)
        print("together:", len(first.assignment()), "and", len(second.assignment()))

        broker.produce("orders", ["chair", "lamp", "table"])
        while len(seen) < 3:
            poll_until([first, second], [2, 2], seen)
            for member in (first, second):
                message = member.poll(0.1)
                if message is not None and not message.error():
                    seen.append(message.value().decode())

        second.close()
        poll_until([first], [4], seen)
        first.close()
    print("read:", sorted(seen))


if __name__ == "__main__":
    main()
