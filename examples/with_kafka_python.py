"""kafka-python (2 or 3): keys, headers, and a consumer group that continues where it stopped."""

from kafka import KafkaConsumer, KafkaProducer

import pykbroker


def read(bootstrap_servers, count):
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=bootstrap_servers, group_id="shop", auto_offset_reset="earliest"
    )
    values = [record.value.decode() for _, record in zip(range(count), consumer, strict=False)]
    consumer.commit()
    consumer.close()
    return values


def main():
    with pykbroker.LocalBroker(topics=["orders"]) as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type="gzip")
        for item in ("book", "lamp", "chair"):
            producer.send("orders", item.encode(), key=b"customer-7", headers=[("source", b"web")])
        producer.close()

        print("first:", read(broker.bootstrap_servers, 2))
        print("then:", read(broker.bootstrap_servers, 1))


if __name__ == "__main__":
    main()
