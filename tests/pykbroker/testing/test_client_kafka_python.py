"""What the adapter mends of kafka-python; its calls are tested beside those of the other library."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: pytest keeps what is logged, and with a logged error the frames that hold the socket.
_SUITE = """
import gc, socket
from pykbroker.testing.local_broker import LocalBroker
from pykbroker.testing.client_kafka_python import KafkaPython

with socket.create_server(("127.0.0.1", 0)) as server:
    refused = f"127.0.0.1:{server.getsockname()[1]}"
with LocalBroker() as broker:
    for number in range(8):
        KafkaPython().create_topic(f"{refused},{broker.bootstrap_servers}", f"t{number}", 1, 1, {}, 10)
gc.collect()
"""


def test_a_refused_connection_leaves_no_socket_to_the_garbage_collector() -> None:
    """kafka-python asks the bootstrap servers in random order, so the refused one is met in most of the rounds."""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _SUITE], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "unclosed" not in done.stderr
