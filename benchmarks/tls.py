"""Cost of TLS: throughput with Java's default cipher, and handshakes per second, ours beside Apache Kafka in one run.

    python -m benchmarks.tls              # --rounds 3 for more

Each round starts a broker with a plain listener and one with TLS, which has a certificate of RSA 2048, and runs Kafka's
ProducerPerformance and ConsumerPerformance on both, then two `openssl s_time` that connect for seconds, with TLS 1.2
and with TLS 1.3, without resuming sessions. Tools and broker share the machine: "CPU" is the broker's own time.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.brokers import KINDS, Broker, BrokerFailedError, free_port, median
from benchmarks.reports import save, show
from benchmarks.throughput import BATCH_SIZE, PRODUCER_LINE, ToolFailedError, create_topic, run_tool
from interop_tests.certificates import Authority

COLUMNS = ("case", "broker", "rate", "unit", "CPU", "unit of CPU")
RECORD_SIZE = 1000
CLIENTS = 2
REPORT_MS = 100
"""Time between two reports of ConsumerPerformance."""
CONNECTIONS_LINE = re.compile(r"(\d+) connections in (\d+) real seconds")


class Figure(NamedTuple):
    """A rate and the broker's processor time for it."""

    rate: float
    unit: str
    cpu: float
    cpu_unit: str


class Certificates:
    """An authority and a broker's key in a folder, and the settings of brokers and clients."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        self._authority = authority.certificate
        self._key = authority.issue("broker", hosts="DNS:localhost,IP:127.0.0.1", is_rsa=True)

    @property
    def of_broker(self) -> list[str]:
        """Settings of a broker."""
        return ["ssl.keystore.type=PEM", f"ssl.keystore.location={self._key}"]

    def of_client(self, broker: Broker, *, is_encrypted: bool) -> list[str]:
        """Settings of a Java client of one of the two listeners."""
        if not is_encrypted:
            return [f"bootstrap.servers={broker.bootstrap_servers}"]
        return [
            f"bootstrap.servers=127.0.0.1:{broker.tls_port}",
            "security.protocol=SSL",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self._authority}",
        ]


def produce(broker: Broker, topic: str, settings: list[str], payload_mb: int) -> Figure:
    """One run of ProducerPerformance."""
    count = payload_mb * 1_000_000 // RECORD_SIZE
    create_topic(broker, topic)
    options = ("--topic", topic, "--num-records", str(count), "--record-size", str(RECORD_SIZE), "--throughput", "-1")
    before = broker.cpu_s()
    output = run_tool("ProducerPerformance", *options, "--producer-props", *settings, f"batch.size={BATCH_SIZE}")
    cpu_s = broker.cpu_s() - before
    matches = list(PRODUCER_LINE.finditer(output))
    if not matches or int(matches[-1]["count"]) != count:
        raise ToolFailedError(f"ProducerPerformance did not send {count} records:\n{output[-1500:]}")
    return Figure(float(matches[-1]["rate"]) * RECORD_SIZE / 1e6, "MB/s", cpu_s / (payload_mb / 1000), "s/GB")


def consume(broker: Broker, topic: str, settings: list[str], payload_mb: int) -> Figure:
    """One run of ConsumerPerformance: the rate of all but its first third, the broker's processor time of all.

    A new JVM first interprets AES and GHASH, at a fraction of their speed, and its compiler takes a core meanwhile.
    Apache Kafka holds up a new group for three seconds, in which a part of that happens; a broker without the delay
    would be measured by how fast a JVM starts.
    """
    count = payload_mb * 1_000_000 // RECORD_SIZE
    path = broker.folder / "client.properties"
    path.write_text("\n".join(settings) + "\n")
    server = settings[0].partition("=")[2]
    options = ("--bootstrap-server", server, "--topic", topic, "--hide-header", "--num-records", str(count))
    reports = ("--show-detailed-stats", "--reporting-interval", str(REPORT_MS))
    before = broker.cpu_s()
    output = run_tool("ConsumerPerformance", *options, *reports, "--timeout", "60000", "--command-config", str(path))
    cpu_s = broker.cpu_s() - before
    rate = steady_rate(output, count)
    return Figure(rate * RECORD_SIZE / 1e6, "MB/s", cpu_s / (payload_mb / 1000), "s/GB")


def steady_rate(output: str, count: int) -> float:
    """Records per second from the first report after a third of `count` records to the last report.

    Raises:
        ToolFailedError: the tool has not read all records, or there are fewer than two such reports.
    """
    reports: list[tuple[datetime, int]] = []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and int(fields[4]) >= count // 3:
            reports.append((datetime.strptime(f"{fields[0]} +0000", "%Y-%m-%d %H:%M:%S:%f %z"), int(fields[4])))
    if "WARNING" in output or len(reports) < 2:
        raise ToolFailedError(
            f"ConsumerPerformance did not read {count} records, or too few to tell:\n{output[-1500:]}"
        )
    (begin, first), (end, last) = reports[0], reports[-1]
    return (last - first) / (end - begin).total_seconds()


def handshakes(broker: Broker, version: str, seconds: int) -> Figure:
    """New connections in so many seconds by `CLIENTS` processes, each of which begins the next when one is made."""
    command = ["openssl", "s_time", "-connect", f"127.0.0.1:{broker.tls_port}", "-new", f"-{version}"]
    before = broker.cpu_s()
    clients = [
        subprocess.Popen([*command, "-time", str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(CLIENTS)
    ]
    outputs = [client.communicate()[0].decode() for client in clients]
    cpu_s = broker.cpu_s() - before
    count, rate = 0, 0.0
    for output in outputs:
        match = CONNECTIONS_LINE.search(output)
        if match is None or not int(match[1]):
            raise ToolFailedError(f"openssl s_time made no connections:\n{output[-1500:]}")
        count += int(match[1])
        rate += int(match[1]) / int(match[2])
    return Figure(rate, "handshakes/s", cpu_s * 1000 / count, "ms each")


def measure(kind: str, payload_mb: int, seconds: int) -> dict[str, Figure]:
    """All cases with a broker of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as folder:
        certificates = Certificates(Path(folder))
        with KINDS[kind](certificates.of_broker, tls_port=free_port()) as broker:
            return _cases(broker, certificates, payload_mb, seconds)


def _cases(broker: Broker, certificates: Certificates, payload_mb: int, seconds: int) -> dict[str, Figure]:
    found: dict[str, Figure] = {}
    for name, is_encrypted in (("plain", False), ("TLS", True)):
        settings = certificates.of_client(broker, is_encrypted=is_encrypted)
        # The first run warms up both sides.
        produce(broker, f"warm-{name.lower()}", settings, payload_mb // 4)
        topic = f"records-{name.lower()}"
        found[f"produce, {name}"] = produce(broker, topic, settings, payload_mb)
        found[f"consume, {name}"] = consume(broker, topic, settings, payload_mb)
    handshakes(broker, "tls1_3", 2)
    for version, name in (("tls1_2", "TLS 1.2"), ("tls1_3", "TLS 1.3")):
        found[f"handshakes, {name}"] = handshakes(broker, version, seconds)
    return found


def main() -> int:
    """Measure in turn, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description="Throughput and handshakes of TLS")
    parser.add_argument("--broker", choices=KINDS, action="append", help="by default both, in turn")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--payload-mb", type=int, default=400)
    parser.add_argument("--seconds", type=int, default=5, help="of each measurement of handshakes")
    arguments = parser.parse_args()
    kinds = arguments.broker or list(KINDS)
    runs: dict[str, list[dict[str, Figure]]] = {kind: [] for kind in kinds}
    try:
        for _ in range(arguments.rounds):
            for kind in kinds:
                runs[kind].append(measure(kind, arguments.payload_mb, arguments.seconds))
                for case, figure in runs[kind][-1].items():
                    print(f"  {kind:10} {case:20} {figure.rate:8.1f} {figure.unit}", file=sys.stderr, flush=True)
    except (BrokerFailedError, ToolFailedError) as error:
        print(f"tls: {error}", file=sys.stderr)
        return 2
    rows = []
    for case in runs[kinds[0]][0]:
        for kind in kinds:
            figures = [run[case] for run in runs[kind]]
            rate, cpu = median([f.rate for f in figures]), median([f.cpu for f in figures])
            rows.append([case, kind, f"{rate:.1f}", figures[0].unit, f"{cpu:.2f}", figures[0].cpu_unit])
    title = "TLS"
    show(title, COLUMNS, rows)
    print(f"written to {save('tls', title, COLUMNS, rows, rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
