"""LocalCluster: three nodes, of which one dies while a producer writes. Nothing that was acknowledged is lost."""

import threading

from confluent_kafka import Producer

import pykbroker

COUNT = 500


def main():
    acknowledged, refused = [], []

    def on_delivery(error, message):
        (refused if error else acknowledged).append(message.value())

    with pykbroker.LocalCluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
        killer = threading.Timer(0.5, cluster.kill, [1])  # kill -9
        killer.start()
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
        for number in range(COUNT):
            producer.produce("orders", str(number).encode(), on_delivery=on_delivery)
            producer.poll(0.005)
        producer.flush(60)
        killer.join()

        stored = {record.value for record in cluster.consume("orders")}
        cluster.start(1)  # again, on its port with its data
    assert not refused and stored == set(acknowledged)
    print(f"{len(acknowledged)} acknowledged, {len(stored)} stored, node 1 was killed on the way")


if __name__ == "__main__":
    main()
