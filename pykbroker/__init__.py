"""pykbroker: a Kafka broker in Python.

Importing this package loads nothing else: no trio, no client library, no part of the broker. `LocalBroker`
and `LocalCluster` are imported on first use.
"""

from __future__ import annotations

from pykbroker.version import __version__

__all__ = ["LocalBroker", "LocalCluster", "__version__"]

# A static import would make every `import pykbroker` (each broker process starts with one) pay for subprocess
# and tempfile. Type checkers read the branch that never runs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pykbroker.testing.local_broker import LocalBroker as LocalBroker
    from pykbroker.testing.local_cluster import LocalCluster as LocalCluster


def __getattr__(name: str) -> object:
    """Imports `LocalBroker` or `LocalCluster` when it is first asked for (PEP 562)."""
    if name == "LocalBroker":
        from pykbroker.testing.local_broker import LocalBroker

        return LocalBroker
    if name == "LocalCluster":
        from pykbroker.testing.local_cluster import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "LocalBroker", "LocalCluster"])
