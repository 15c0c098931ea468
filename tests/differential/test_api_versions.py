"""APIs and versions that Apache Kafka lists, on a broker's port and on a controller's, beside ours, one by one.

Each that is missing here is listed with its reason; one that was added since must be taken off the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from interop_tests.brokers import ApacheKafkaProcess, PykbrokerProcess
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.requests.api_table import CONTROLLER_APIS
from tests.support.transcripts import Client

pytestmark = pytest.mark.java

Versions = dict[ApiKey, tuple[int, int]]

MISSING: Mapping[ApiKey, str] = {}
"""APIs that Kafka lists and we do not, with the reason."""
OTHER_VERSIONS: Mapping[ApiKey, str] = {}
"""APIs of which Kafka serves other versions."""


def listed(host: str, port: int) -> Versions:
    client = Client(host, port)
    try:
        answer: Any = client.call(ApiVersionsRequest(), 2)
    finally:
        client.close()
    return {ApiKey(one.api_key): (one.min_version, one.max_version) for one in answer.api_keys}


def controller_of(kafka: ApacheKafkaProcess) -> tuple[str, int]:
    lines = Path(kafka.folder / "server.properties").read_text().splitlines()
    (voters,) = (line for line in lines if line.startswith("controller.quorum.voters="))
    host, _, port = voters.partition("@")[2].rpartition(":")
    return host, int(port)


def compare(kafkas: Versions, ours: Versions) -> None:
    missing = {key.name for key in kafkas if key not in ours}
    assert missing == {key.name for key in MISSING if key in kafkas and key not in ours}
    assert not [key.name for key in MISSING if key in ours], "these are here now"
    assert not [key.name for key in ours if key not in kafkas], "Kafka does not list these"
    different = {key: (kafkas[key], ours[key]) for key in ours if kafkas[key] != ours[key]}
    assert set(different) == set(OTHER_VERSIONS) & set(ours), different


def test_a_brokers_apis_are_kafkas(processes: tuple[ApacheKafkaProcess, PykbrokerProcess]) -> None:
    """P-203: neither lists the APIs for metrics of clients."""
    kafka, ours = processes
    compare(listed(*kafka.address), listed(*ours.address))


def test_a_controllers_apis_are_kafkas(processes: tuple[ApacheKafkaProcess, PykbrokerProcess]) -> None:
    ours = {api.key: (api.advertised_lowest, api.highest) for api in CONTROLLER_APIS.values()}
    compare(listed(*controller_of(processes[0])), ours)
