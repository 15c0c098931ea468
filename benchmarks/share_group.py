"""Throughput of a share group: many consumers of one partition, ours and Apache Kafka in turn.

    python -m benchmarks.share_group            # 20 consumers, 200,000 records of 1,000 bytes

Kafka's own tools make the load: ProducerPerformance fills the partition, ShareConsumerPerformance reads it in one
group. Prints records per second from the consumers' start on, with the time in which they join, and the broker's
processor time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from benchmarks.brokers import KINDS, Broker, BrokerFailedError, java_command
from benchmarks.reports import save, show

COLUMNS = ("broker", "records/s", "MB/s", "broker CPU s", "CPU us/record")
SETTINGS = (
    "group.share.min.heartbeat.interval.ms=100",
    "group.share.heartbeat.interval.ms=500",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
    "group.share.assignment.interval.ms=0",
)
TOPIC, GROUP = "shared", "share-group"


def run(main_class: str, *arguments: str) -> str:
    """Runs a tool to its end; returns its output. Raises BrokerFailedError."""
    done = subprocess.run([*java_command(), main_class, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BrokerFailedError(f"{main_class} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def measure(broker: Broker, consumers: int, records: int, size: int) -> list[str]:
    """A line of the table."""
    server = ("--bootstrap-server", broker.bootstrap_servers)
    run("org.apache.kafka.tools.TopicCommand", *server, "--create", "--topic", TOPIC, "--partitions", "1")
    group = ("--entity-type", "groups", "--entity-name", GROUP)
    run("kafka.admin.ConfigCommand", *server, "--alter", *group, "--add-config", "share.auto.offset.reset=earliest")
    written = ("--num-records", str(records), "--record-size", str(size), "--throughput", "-1")
    properties = ("--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "linger.ms=5")
    run("org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, *written, *properties)
    time.sleep(1.0)
    before = broker.cpu_s()
    wanted = ("--num-records", str(records), "--threads", str(consumers), "--timeout", "60000", "--hide-header")
    output = run(
        "org.apache.kafka.tools.ShareConsumerPerformance", *server, "--topic", TOPIC, "--group", GROUP, *wanted
    )
    cpu_s = broker.cpu_s() - before
    # start, end, MB, MB/s, records/s, records, ms of fetching
    cells = [cell.strip() for cell in output.strip().splitlines()[-1].split(",")]
    count = int(float(cells[5]))
    row = [
        broker.name,
        f"{float(cells[4]):,.0f}",
        f"{float(cells[3]):.1f}",
        f"{cpu_s:.2f}",
        f"{cpu_s / count * 1e6:.1f}",
    ]
    print("  " + "  ".join(row), file=sys.stderr, flush=True)
    return row


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.share_group", description="Throughput of a share group")
    parser.add_argument("--broker", choices=KINDS, help="only this one; by default both in turn")
    parser.add_argument("--consumers", type=int, default=20)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--record-size", type=int, default=1_000, metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    rows = []
    try:
        for _ in range(arguments.rounds):
            for name in [arguments.broker] if arguments.broker else list(KINDS):
                with KINDS[name](SETTINGS) as broker:
                    rows.append(measure(broker, arguments.consumers, arguments.records, arguments.record_size))
    except BrokerFailedError as error:
        print(f"share_group: {error}", file=sys.stderr)
        return 2
    title = f"Share group of {arguments.consumers} consumers, records of {arguments.record_size} bytes"
    show(title, COLUMNS, rows)
    print(f"written to {save('share-group', title, COLUMNS, rows, rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
