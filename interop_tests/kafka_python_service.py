"""The module `test.service` that kafka-python's tests import and its source distribution lacks.

Upstream it starts and stops Java processes. Against a broker that runs already there is nothing to start: KafkaFixture
makes an ExternalService and calls its methods at its own beginning and end. Copied beside the tests by
`kafka_python_suite`; nothing else imports it.
"""

from __future__ import annotations


class ExternalService:
    """A broker that somebody else started and will stop."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Nothing: it runs."""

    def close(self) -> None:
        """Nothing: it goes on running."""

    def dump_logs(self) -> None:
        """Nothing: its log is with whoever started it."""

    def wait_for(self, pattern: str, timeout: float | None = None) -> bool:
        """True, without a look at the log for `pattern`: the broker was ready before the tests began."""
        return True


class SpawnedService:
    """Imported by the fixtures, and made by none of the tests that run here."""
