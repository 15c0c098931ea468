"""A real Apache Kafka node from the published jars, for tests that compare or exchange data with it."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from interop_tests.ports import free_ports
from tests.support.kafka_jars import kafka_libs

START_SECONDS_MAX = 90


def java(*arguments: str) -> list[str]:
    """A command line that runs a class of the Kafka jars."""
    return ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs()}/*", *arguments]


@contextmanager
def apache_kafka(folder: Path, data: Path, *, is_new: bool = False, **more: str) -> Iterator[str]:
    """A Kafka node with id 1 on a data directory that has a meta.properties, stopped in order at the end.

    A new directory is formatted first. Yields its bootstrap address. Settings and log lie in `folder`; `more` has
    further settings, with "_" for ".".
    """
    port, controller_port = free_ports(2)
    properties = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    settings = folder / "server.properties"
    settings.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    if is_new:
        formatting = ["format", "--cluster-id", "new-directory-AAAAAAAA", "--config", str(settings)]
        subprocess.run(java("kafka.tools.StorageTool", *formatting), check=True, capture_output=True)
    with (folder / "kafka.log").open("w") as log:
        process = subprocess.Popen(java("kafka.Kafka", str(settings)), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while process.poll() is None and time.monotonic() < deadline:
                with closing(socket.socket()) as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            else:
                pytest.fail((folder / "kafka.log").read_text()[-4000:])
            yield f"127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
