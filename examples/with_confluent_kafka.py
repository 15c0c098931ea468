"""confluent-kafka (librdkafka): a committed transaction, an aborted one, and a reader of committed records."""

from confluent_kafka import Consumer, Producer

import pykbroker


def main():
    with pykbroker.LocalBroker(topics=["payments"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "till-1"})
        producer.init_transactions()

        producer.begin_transaction()
        producer.produce("payments", b"10 EUR")
        producer.produce("payments", b"20 EUR")
        producer.commit_transaction()

        producer.begin_transaction()
        producer.produce("payments", b"a mistake")
        producer.abort_transaction()

        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "books",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.subscribe(["payments"])
        values = []
        while (message := consumer.poll(10)) is not None and not message.error():
            values.append(message.value().decode())
        consumer.close()
    print("committed:", values)


if __name__ == "__main__":
    main()
