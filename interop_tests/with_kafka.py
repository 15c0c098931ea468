"""Runs a command on an Apache Kafka that is started for it: `python -m interop_tests.with_kafka COMMAND...`.

`--bootstrap-servers` with its address is added to the command. The exit code is the command's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from interop_tests.brokers import ApacheKafkaProcess
from interop_tests.java_tools import JavaTools
from interop_tests.kafka_jars import JarsUnavailableError, kafka_jars

SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def main(command: Sequence[str]) -> int:
    """Start, run, end."""
    try:
        tools = JavaTools(kafka_jars())
    except JarsUnavailableError as reason:
        print(reason, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="with-kafka-") as folder:
        broker = ApacheKafkaProcess(Path(folder), Path(folder) / "kafka.log", SETTINGS, tools)
        try:
            broker.start()
            print(f"Apache Kafka at {broker.bootstrap}", flush=True)
            return run([*command, "--bootstrap-servers", broker.bootstrap])
        finally:
            broker.kill()


def run(command: Sequence[str]) -> int:
    """The exit code of a command, which is told to end when this process is."""
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
