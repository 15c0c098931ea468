"""Refusals of a client that may do nothing, in the form of Apache Kafka's; found by `tests.differential`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.whole_broker import WholeBroker

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeBroker]:
    folder: Path = tmp_path_factory.mktemp("refusals")
    with WholeBroker(folder, {"log.dirs": str(folder / "data")} | AUTHORIZER) as running:
        yield running


def test_a_refused_move_repeats_every_partition_of_the_request(broker: WholeBroker) -> None:
    """P-372."""
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0, 0])]
    dirs = [AlterReplicaLogDir(path=path, topics=topics) for path in ("/a", "/b")]
    results = broker.client.call(AlterReplicaLogDirsRequest(dirs=dirs), 2).results
    found = [
        (topic.topic_name, part.partition_index, part.error_code) for topic in results for part in topic.partitions
    ]
    assert found == [("t", 0, CLUSTER_REFUSED)] * 4


def test_refused_markers_name_producers_without_partitions(broker: WholeBroker) -> None:
    """P-372."""
    marker = WritableTxnMarker(producer_id=7, topics=[WritableTxnMarkerTopic(name="t")])
    markers = broker.client.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    assert [(result.producer_id, result.topics) for result in markers] == [(7, [])]


def test_the_isolation_level_of_a_client_without_rights_is_not_looked_at(broker: WholeBroker) -> None:
    """P-372: with a topic that it may look at every partition would have UNKNOWN_SERVER_ERROR."""
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=16, topics=topics)
    answer = broker.client.call(request, 11)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("request_type", [AddRaftVoterRequest, RemoveRaftVoterRequest])
def test_a_refused_change_of_voters_has_the_text_of_its_code(broker: WholeBroker, request_type: type) -> None:
    """P-372."""
    answer = broker.client.call(request_type(), 0)
    assert (answer.error_code, answer.error_message) == (CLUSTER_REFUSED, "Cluster authorization failed.")
