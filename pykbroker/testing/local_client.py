"""Calls of LocalBroker and LocalCluster that a test needs most often: topics, records, groups.

The work is done by a Kafka client library, not by this package: what a test reads back is then what a client sees. The
library is the one that the test suite has loaded already, else confluent-kafka, else kafka-python (2 or 3). Connections
are opened for each call and closed after it, so none is left open at a test's end. They use TLS where the broker was
made with `tls=True`, and do not log in.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeAlias

from pykbroker.security.tls.development import CA_FILE, CLIENT_FILE
from pykbroker.testing.client_library import (
    ClientLibrary,
    LocalBrokerError,
    NewRecord,
    NewTopic,
    Position,
    Reading,
    Record,
)
from pykbroker.testing.client_settings import Access

__all__ = ["ClientLibrary", "LocalBrokerError", "LocalClient", "NewRecord", "Position", "Record", "client_library"]

_POLL_S = 0.02

Headers: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class LocalClient:
    """The calls, as a base class; a subclass has the `bootstrap_servers`."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, or several with commas."""
        raise NotImplementedError

    @property
    def _tls_directory(self) -> str | None:
        """The directory with the certificates; None without TLS."""
        raise NotImplementedError

    @property
    def _access(self) -> Access:
        return Access(self.bootstrap_servers, self._tls_directory)

    @property
    def kafka_python_settings(self) -> dict[str, str]:
        """Address, and with TLS the certificates: `KafkaProducer(**broker.kafka_python_settings)`."""
        return self._access.kafka_python

    @property
    def confluent_settings(self) -> dict[str, str]:
        """Address, and with TLS the certificates: `Producer(broker.confluent_settings)`, for clients on librdkafka."""
        return self._access.confluent

    @property
    def java_settings(self) -> dict[str, str]:
        """Address, and with TLS the certificates, as properties of a Java client.

        Spark takes each with `kafka.` before its name.
        """
        return self._access.java

    @property
    def tls_ca_file(self) -> str:
        """Path of the certificate, in PEM, that a client of a broker with TLS must trust.

        Raises:
            LocalBrokerError: the broker has no TLS.
        """
        return self._tls_file(CA_FILE)

    @property
    def tls_client_file(self) -> str:
        """Path of a client's private key and certificate, in PEM, for `ssl.client.auth`.

        Raises:
            LocalBrokerError: the broker has no TLS.
        """
        return self._tls_file(CLIENT_FILE)

    def _tls_file(self, name: str) -> str:
        if self._tls_directory is None:
            raise LocalBrokerError("there are no certificates: it was made without tls=True")
        return os.path.join(self._tls_directory, name)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str | float] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> None:
        """Creates a topic and waits until it can be used.

        Args:
            name: the topic's name.
            partitions: number of partitions.
            replication_factor: replicas of each; None: the brokers' `default.replication.factor`.
            config: the topic's settings by Kafka's names, such as `{"cleanup.policy": "compact"}`.
            timeout_s: how long this may take.

        Raises:
            LocalBrokerError: the broker refused it, with the broker's text, or there is no client library.
        """
        settings = as_properties(config)
        factor = -1 if replication_factor is None else replication_factor
        client_library().create_topic(self._access, NewTopic(name, partitions, factor, settings), timeout_s)

    def produce(
        self,
        topic: str,
        values: bytes | str | Iterable[bytes | str | None] | None,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timeout_s: float = 30.0,
    ) -> list[Position]:
        """Writes one record or several and waits until all are acknowledged (acks=all).

        Args:
            topic: the topic's name; it is created if the broker does that (`auto.create.topics.enable`).
            values: one value, or an iterable of values; texts are written as UTF-8, None is a tombstone.
            key: the key of each of them.
            headers: the headers of each of them.
            partition: the partition of all of them; by default the client library chooses it by the key.
            timeout_s: how long all of it may take.

        Returns:
            Partition and offset of each record, in the order of `values`.

        Raises:
            LocalBrokerError: a record was not acknowledged, with the reason, or there is no client library.
        """
        each = [values] if values is None or isinstance(values, bytes | str) else list(values)
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        common = tuple((name, _as_bytes(value, "header")) for name, value in pairs)
        records = [NewRecord(_as_bytes(key, "key"), _as_bytes(value, "value"), common, partition) for value in each]
        return client_library().produce(self._access, topic, records, timeout_s) if records else []

    def consume(
        self,
        topic: str,
        count: int | None = None,
        *,
        timeout_s: float = 30.0,
        from_beginning: bool = True,
        isolation_level: str = "read_uncommitted",
    ) -> list[Record]:
        """Reads records of all partitions of a topic, without a group.

        Args:
            topic: the topic's name. With a `count` it may be created while this waits.
            count: number of records to wait for and to return; None: the records that are there now.
            timeout_s: how long this may take.
            from_beginning: begin with the first record; False: with the next one written, which needs a `count`.
            isolation_level: "read_committed" leaves out open and aborted transactions.

        Returns:
            The records; those of one partition in their order.

        Raises:
            LocalBrokerError: fewer than `count` came in time, there is no such topic, or there is no client library.
            ValueError: the arguments do not fit together.
        """
        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f'isolation_level={isolation_level!r}: expected "read_uncommitted" or "read_committed"')
        if count is None and not from_beginning:
            raise ValueError("from_beginning=False needs a count: nothing that is there now would be read")
        if count is not None and count < 1:
            raise ValueError(f"count={count}: expected at least 1, or None for all that is there")
        found = client_library().consume(
            self._access, Reading(topic, count, timeout_s, from_beginning, isolation_level)
        )
        if count is not None and len(found) < count:
            last = f"; the last was {found[-1]}" if found else ""
            raise LocalBrokerError(f"{len(found)} of {count} records of {topic} came within {timeout_s:g} s{last}")
        return found

    def wait_for_group(self, group: str, members: int = 1, *, timeout_s: float = 30.0) -> None:
        """Waits until a consumer group is stable with this number of members: each has its partitions.

        Args:
            group: the group's id; it need not exist yet.
            members: exact number of members.
            timeout_s: how long this may take.

        Raises:
            LocalBrokerError: the group was not so in time, with its last state, or there is no client library.
        """
        deadline = time.monotonic() + timeout_s
        with client_library().group_states(self._access, group) as ask:
            while True:
                state, count = ask(max(deadline - time.monotonic(), 1.0))
                if state == "stable" and count == members:
                    return
                if time.monotonic() >= deadline:
                    raise LocalBrokerError(
                        f"group {group} is {state} with {count} members after {timeout_s:g} s, "
                        f"and not stable with {members}"
                    )
                time.sleep(_POLL_S)


def client_library() -> ClientLibrary:
    """The client library to use: one that is imported already, else one that is installed.

    Raises:
        LocalBrokerError: none is installed.
    """
    loaded = [name for name in ("confluent_kafka", "kafka") if name in sys.modules]
    for name in (*loaded, "confluent_kafka", "kafka"):
        with suppress(ImportError), warnings.catch_warnings():
            # kafka-python 3 warns at its import, which must not fail a test suite that turns warnings into errors.
            warnings.simplefilter("ignore")
            if name == "kafka":
                from pykbroker.testing.client_kafka_python import KafkaPython

                return KafkaPython()
            from pykbroker.testing.client_confluent_kafka import ConfluentKafka

            return ConfluentKafka()
    raise LocalBrokerError(  # pragma: no cover: tests/installation has an environment without a library
        "no Kafka client library is installed: pip install confluent-kafka, or pip install kafka-python"
    )


def as_properties(settings: Mapping[str, str | float] | None) -> dict[str, str]:
    """Settings with their values as text, as in a server.properties: true, not True."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (settings or {}).items()
    }


def _as_bytes(value: object, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a record's {what} is bytes, str or None, not {type(value).__name__}: serialize it first")
