"""Responses to a request whose handler failed: every API and version, with the error in the field that Kafka uses."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

from pykbroker.errors import error_code_for
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker.protocol.messages.controller_registration import ControllerRegistrationRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.requests.api_table import APIS, camel_case
from pykbroker.requests.error_responses import error_response
from tests.support.message_strategies import random_message

ERROR = ErrorCode.UNKNOWN_SERVER_ERROR
CASES = [(api, version) for api in APIS.values() for version in range(api.lowest, api.highest + 1)]


def answered(request: Any, version: int) -> Any:
    """The error response, over the wire and back."""
    response = error_response(request, version, ERROR, "oops")
    assert response is not None
    return decode(type(response), version, encode(response, version))


def error_codes(message: Message, version: int) -> list[int]:
    """Every error code in a message."""
    found = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if version not in field.versions:
            continue
        if field.name == "error_code":
            found.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], Message):
            for element in value:
                found += error_codes(element, version)
    return found


@pytest.mark.parametrize(("api", "version"), CASES, ids=lambda value: getattr(value, "name", str(value)))
def test_every_response_can_say_an_error(api: Any, version: int) -> None:
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    generator = random.Random(version)
    for _ in range(20):
        request = random_message(getattr(module, camel_case(api.name) + "Request"), version, generator)
        if api.key is ApiKey.PRODUCE:
            request.acks = 1
        response = answered(request, version)
        assert set(error_codes(response, version)) <= {ERROR}


def test_partitions_of_a_produce_request() -> None:
    data = [PartitionProduceData(index=index, records=b"") for index in (3, 5)]
    request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    (topic,) = answered(request, 9).responses
    assert topic.name == "t"
    assert [
        (p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.error_message) for p in topic.partition_responses
    ] == [
        (3, ERROR, -1, -1, "oops"),
        (5, ERROR, -1, -1, "oops"),
    ]
    request.acks = 0
    assert error_response(request, 9, ERROR, None) is None


def test_partitions_of_a_fetch_are_named_up_to_version_12() -> None:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=2)])
    old = answered(FetchRequest(topics=[topic]), 12)
    assert (old.error_code, old.responses[0].topic) == (ERROR, "t")
    (partition,) = old.responses[0].partitions
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (2, ERROR, -1)
    topic = FetchTopic(topic_id=bytes(range(16)), partitions=[FetchPartition(partition=2)])
    new = answered(FetchRequest(topics=[topic]), 13)
    assert (new.error_code, new.responses) == (ERROR, [])


def test_list_offsets() -> None:
    topics = [ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=4)])]
    (topic,) = answered(ListOffsetsRequest(topics=topics), 7).topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.error_code) == ("t", 4, ERROR)
    assert (partition.offset, partition.timestamp) == (-1, -1)


def test_metadata() -> None:
    response = answered(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 13)
    assert response.error_code == ERROR
    assert [(topic.name, topic.error_code, topic.partitions) for topic in response.topics] == [("t", ERROR, [])]


def test_offset_fetch_has_its_error_in_three_places() -> None:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[6])]
    first = answered(OffsetFetchRequest(group_id="g", topics=topics), 1)
    (partition,) = first.topics[0].partitions
    assert (first.topics[0].name, partition.partition_index, partition.error_code) == ("t", 6, ERROR)
    assert partition.committed_offset == -1
    second = answered(OffsetFetchRequest(group_id="g", topics=topics), 7)
    assert (second.error_code, second.topics) == (ERROR, [])
    third = answered(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), 8)
    assert [(group.group_id, group.error_code, group.topics) for group in third.groups] == [("g", ERROR, [])]


def test_names_without_a_struct() -> None:
    (group,) = answered(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (group.group_id, group.error_code) == ("g", ERROR)
    (coordinator,) = answered(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert (coordinator.key, coordinator.error_code, coordinator.node_id, coordinator.port) == ("g", ERROR, -1, -1)
    (topic,) = answered(DeleteTopicsRequest(topic_names=["t"]), 5).responses
    assert (topic.name, topic.error_code) == ("t", ERROR)
    (topic,) = answered(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), 6).responses
    assert (topic.name, topic.error_code) == ("t", ERROR)


def test_where_there_is_an_error_on_top_nothing_is_repeated() -> None:
    response = answered(LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")]), 5)
    assert (response.error_code, response.members) == (ERROR, [])


def test_ids_of_the_request_are_not_repeated_on_top() -> None:
    """Kafka repeats only the session of a Fetch; a member or producer that has failed gets no id."""
    joined = answered(JoinGroupRequest(group_id="g", member_id="m"), 9)
    assert (joined.error_code, joined.member_id, joined.generation_id) == (ERROR, "", -1)
    begun = answered(InitProducerIdRequest(transactional_id="t", producer_id=4, producer_epoch=2), 4)
    assert (begun.error_code, begun.producer_id) == (ERROR, -1)
    ended = answered(EndTxnRequest(transactional_id="t", producer_id=4, producer_epoch=2), 5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (ERROR, -1, -1)
    assert answered(FetchRequest(session_id=9), 13).session_id == 9


def test_some_apis_have_the_text_of_the_code() -> None:
    """A registration of a controller and changes of voters, whatever the reason was."""
    for request in (ControllerRegistrationRequest(), AddRaftVoterRequest()):
        response = error_response(request, 0, ErrorCode.UNSUPPORTED_VERSION, "too old")
        assert getattr(response, "error_message", None) == "The version of API is not supported."


def test_an_exception_that_has_no_code_is_a_defect() -> None:
    """It is raised again, so that it is logged with its traceback."""
    with pytest.raises(ZeroDivisionError):
        error_code_for(ZeroDivisionError())
