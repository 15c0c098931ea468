"""Cost of 1,000 connections and 1,000 partitions for a broker that has nothing to do.

    python -m benchmarks.idle            # ours;  --broker kafka for Apache Kafka

The connections have each asked ApiVersions and then wait; the partitions are those of ten topics, created by a
stock client. Prints memory and processor time without either, with the partitions, and with both.
"""

from __future__ import annotations

import argparse
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.brokers import API_VERSIONS_REQUEST, KINDS, Broker, BrokerFailedError
from benchmarks.reports import save, show

COLUMNS = ("state", "RSS MB", "PSS MB", "CPU %", "open files", "threads")
TOPICS = 10


def look(broker: Broker, state: str, seconds: float) -> list[str]:
    """A line of the table: the broker as it is now, watched for so long."""
    time.sleep(1.0)
    percent = broker.idle_cpu_percent(seconds)
    memory = broker.memory()
    files, threads = (len(list(Path(f"/proc/{broker.pid}/{what}").iterdir())) for what in ("fd", "task"))
    row = [state, f"{memory.rss_mb:.1f}", f"{memory.pss_mb:.1f}", f"{percent:.2f}", str(files), str(threads)]
    print("  " + "  ".join(row), file=sys.stderr, flush=True)
    return row


def create_partitions(broker: Broker, count: int) -> float:
    """So many partitions in ten topics; returns the seconds that took."""
    from kafka.admin import KafkaAdminClient, NewTopic

    admin: Any = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    began = time.monotonic()
    each = count // TOPICS
    admin.create_topics([NewTopic(f"idle-{n}", num_partitions=each, replication_factor=1) for n in range(TOPICS)])
    seconds = time.monotonic() - began
    admin.close()
    return seconds


def connect(broker: Broker, count: int) -> list[socket.socket]:
    """Open so many connections, each of which has asked one question and had its answer begun."""
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", broker.port), timeout=30)
        connection.sendall(API_VERSIONS_REQUEST)
        connections.append(connection)
    for connection in connections:
        if len(connection.recv(65536)) < 10:
            raise BrokerFailedError(f"{broker.name} closed a connection:\n{broker.log_tail()}")
    return connections


def main() -> int:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description="Idle connections and partitions")
    parser.add_argument("--broker", choices=KINDS, default="pykbroker")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--watch", type=float, default=10.0, metavar="S", help="how long to watch each state")
    arguments = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = arguments.connections + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    rows = []
    try:
        with KINDS[arguments.broker]() as broker:
            rows.append(look(broker, "bare", arguments.watch))
            seconds = create_partitions(broker, arguments.partitions)
            rows.append(look(broker, f"{arguments.partitions} partitions", arguments.watch))
            connections = connect(broker, arguments.connections)
            rows.append(look(broker, f"and {arguments.connections} connections", arguments.watch))
            for connection in connections:
                connection.close()
            rows.append(look(broker, "connections closed", arguments.watch))
    except BrokerFailedError as error:
        print(f"idle: {error}", file=sys.stderr)
        return 2
    title = f"Idle {arguments.broker}"
    show(title, COLUMNS, rows)
    print(f"{arguments.partitions} partitions were created in {seconds:.2f} s")
    print(f"written to {save(f'idle-{arguments.broker}', title, COLUMNS, rows, rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
