"""Every API in every version that a controller's port advertises: a process with such a port answers each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import pykbroker
from interop_tests.ports import free_port
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode
from pykbroker.protocol.messages import (
    alter_partition,
    assign_replicas_to_dirs,
    begin_quorum_epoch,
    broker_registration,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    vote,
)
from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.uuids import METADATA_TOPIC_ID
from pykbroker.requests.api_table import CONTROLLER_APIS, camel_case
from pykbroker.security.principal_data import principal_to_bytes
from tests.pykbroker.test_every_version import Wire, fields_of, fitted
from tests.support.only_voter import only_voter

CASES = [(api, version) for api in CONTROLLER_APIS.values() for version in range(api.lowest, api.highest + 1)]
LOG = "__cluster_metadata"
REFUSED = (ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
"""APIs that the port lists and Kafka's controllers do not know (P-378)."""
OTHER = 9
"""A node that is none of the quorum's."""


@pytest.fixture(scope="module")
def controller() -> Iterator[int]:
    """The port of a controller that leads a quorum of one and is a broker as well."""
    port = free_port()
    with pykbroker.LocalBroker(topics={"t": 2}, config=only_voter(port)) as local:
        yield port
    assert "Traceback" not in local.log, local.log[local.log.index("Traceback") - 200 :]


def fields_at_controller(api: ApiKey, name: str) -> dict[str, Any]:
    """Fields of requests that brokers do not serve, or serve in another way. Their epochs are old, so that they change
    nothing."""
    forwarded = CreateTopicsRequest(topics=[CreatableTopic(name=name)], validate_only=True)
    table: dict[ApiKey, dict[str, Any]] = {
        ApiKey.FETCH: {
            "replica_id": OTHER,
            "replica_state": fetch.ReplicaState(replica_id=OTHER),
            "topics": [
                fetch.FetchTopic(
                    topic=name,
                    topic_id=METADATA_TOPIC_ID if name == LOG else bytes(16),
                    partitions=[fetch.FetchPartition(last_fetched_epoch=0, current_leader_epoch=0)],
                )
            ],
        },
        ApiKey.VOTE: {"topics": [vote.TopicData(topic_name=name, partitions=[vote.PartitionData(replica_id=OTHER)])]},
        ApiKey.BEGIN_QUORUM_EPOCH: {
            "topics": [
                begin_quorum_epoch.TopicData(
                    topic_name=name, partitions=[begin_quorum_epoch.PartitionData(leader_id=OTHER)]
                )
            ]
        },
        ApiKey.END_QUORUM_EPOCH: {
            "topics": [
                end_quorum_epoch.TopicData(
                    topic_name=name,
                    partitions=[end_quorum_epoch.PartitionData(leader_id=OTHER, preferred_successors=[1])],
                )
            ]
        },
        ApiKey.FETCH_SNAPSHOT: {
            "topics": [fetch_snapshot.TopicSnapshot(name=name, partitions=[fetch_snapshot.PartitionSnapshot()])]
        },
        ApiKey.ALTER_PARTITION: {
            "broker_id": 1,
            "topics": [alter_partition.TopicData(partitions=[alter_partition.PartitionData(new_isr=[1])])],
        },
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: {
            "broker_id": 1,
            "directories": [assign_replicas_to_dirs.DirectoryData(id=bytes(15) + b"\x70")],
        },
        ApiKey.ENVELOPE: {
            "request_data": b"\0\x13\0\7\0\0\0\1\0\4test\0" + encode(forwarded, 7),
            "request_principal": principal_to_bytes("User:a"),
            "client_host_address": bytes(4),
        },
        ApiKey.BROKER_REGISTRATION: {
            "broker_id": OTHER,
            "listeners": [broker_registration.Listener(name="PLAINTEXT", host="h", port=1)],
            "features": [broker_registration.Feature(name="metadata.version", max_supported_version=99)],
            "rack": None,
            "log_dirs": [bytes(15) + b"\x71"],
        },
        ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 2},
    }
    return table.get(api) or fields_of(api, "t" if name == LOG else name, bytes(16), "g")


@pytest.mark.parametrize("name", [LOG, "no-such-topic"])
@pytest.mark.parametrize(("api", "version"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_every_advertised_version_is_answered(controller: int, api: Any, version: int, name: str) -> None:
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    request_type = getattr(module, camel_case(api.name) + "Request")
    request = request_type(**fields_at_controller(api.key, name))
    wire = Wire(controller)
    try:
        response = wire.call(fitted(request, version), version)
    finally:
        wire.close()
    assert type(response).__name__ == camel_case(api.name) + "Response"
    assert (getattr(response, "error_code", 0) == -1) == (api.key in REFUSED), response


def test_the_port_lists_the_controllers_apis(controller: int) -> None:
    wire = Wire(controller)
    response = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    wire.close()
    listed = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert listed == {key: (api.lowest, api.highest) for key, api in CONTROLLER_APIS.items()}
