"""Settings with which a client connects to a LocalBroker or LocalCluster, by client library."""

from __future__ import annotations

from pykbroker.named_tuple import NamedTuple
from pykbroker.security.tls.development import client_settings

__all__ = ["Access"]


class Access(NamedTuple):
    """Addresses of brokers, and the certificates for connections to them.

    Attributes:
        bootstrap_servers: `host:port`, or several with commas.
        tls_directory: the directory with the certificates of these brokers; None without TLS.
    """

    bootstrap_servers: str
    tls_directory: str | None = None

    @property
    def kafka_python(self) -> dict[str, str]:
        """Arguments of kafka-python's classes."""
        tls = {} if self.tls_directory is None else client_settings(self.tls_directory).python
        return {"bootstrap_servers": self.bootstrap_servers, **tls}

    @property
    def confluent(self) -> dict[str, str]:
        """Settings of confluent-kafka."""
        tls = {} if self.tls_directory is None else client_settings(self.tls_directory).librdkafka
        return {"bootstrap.servers": self.bootstrap_servers, **tls}

    @property
    def java(self) -> dict[str, str]:
        """Properties of Kafka's Java clients."""
        tls = {} if self.tls_directory is None else client_settings(self.tls_directory).java
        return {"bootstrap.servers": self.bootstrap_servers, **tls}
