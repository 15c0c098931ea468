"""A pytest plugin by which kafka-python's own SASL tests run against a broker that is there already.

They are skipped upstream where KAFKA_URI is set, as their fixtures start a broker for each mechanism. Here the fixture
of a broker with SASL stands for the one at KAFKA_SASL_ADDRESS, which offers all mechanisms. Copied beside the tests by
`kafka_python_suite`.
"""

from __future__ import annotations

import os
from typing import Any


def pytest_configure(config: object) -> None:
    """Replaces the two methods that need a Kafka distribution."""
    from kafka import KafkaAdminClient
    from test.integration.fixtures import KafkaFixture  # type: ignore[import-not-found]

    host, _, port = os.environ["KAFKA_SASL_ADDRESS"].rpartition(":")
    make = KafkaFixture.instance.__func__

    def instance(cls: Any, /, broker_id: int, transport: str, sasl_mechanism: str, **ignored: object) -> Any:
        where = {"host": host, "port": int(port), "external": True}
        return make(cls, broker_id, **where, transport=transport, sasl_mechanism=sasl_mechanism)

    def get_topic_names(fixture: Any) -> Any:
        admin = KafkaAdminClient(**fixture._enrich_client_params({}))
        try:
            return admin.list_topics()
        finally:
            admin.close()

    KafkaFixture.instance = classmethod(instance)
    KafkaFixture.get_topic_names = get_topic_names
