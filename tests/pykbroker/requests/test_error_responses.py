"""P-650: responses to a request whose handler failed: every API and version, with the error where Kafka has it."""

from __future__ import annotations

import importlib
import random
from typing import Any

import pytest

from pykbroker.errors import error_code_for
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import decode, encode
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import SERVER_ERROR_MESSAGE
from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest
from pykbroker.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData
from pykbroker.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pykbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pykbroker.protocol.messages.controller_registration import ControllerRegistrationRequest
from pykbroker.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pykbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from pykbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from pykbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.join_group import JoinGroupRequest
from pykbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pykbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from pykbroker.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from pykbroker.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from pykbroker.protocol.messages.share_fetch import ShareFetchRequest
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
    assert (begun.error_code, begun.producer_id, begun.producer_epoch) == (ERROR, -1, -1)
    ended = answered(EndTxnRequest(transactional_id="t", producer_id=4, producer_epoch=2), 5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (ERROR, -1, -1)
    assert answered(FetchRequest(session_id=9), 13).session_id == 9


def test_a_null_protocol_where_join_group_has_it() -> None:
    assert answered(JoinGroupRequest(group_id="g"), 6).protocol_name == ""
    assert answered(JoinGroupRequest(group_id="g"), 7).protocol_name is None


def test_a_topic_that_was_to_be_deleted_by_its_id_has_no_name() -> None:
    (topic,) = answered(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=bytes(range(16)))]), 6).responses
    assert (topic.name, topic.topic_id) == (None, bytes(range(16)))


def test_forgotten_topics_of_a_fetch_are_not_named() -> None:
    response = answered(FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])]), 12)
    assert (response.error_code, response.responses) == (ERROR, [])


def test_partitions_of_one_transaction() -> None:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[3, 1])]
    (topic,) = answered(AddPartitionsToTxnRequest(v3_and_below_topics=topics), 3).results_by_topic_v3_and_below
    found = [(partition.partition_index, partition.partition_error_code) for partition in topic.results_by_partition]
    assert (topic.name, found) == ("t", [(3, ERROR), (1, ERROR)])
    assert answered(AddPartitionsToTxnRequest(), 4).error_code == ERROR


def test_log_directories() -> None:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[0])])
    assert answered(request, 2).results == []
    assert (answered(request, 3).error_code, answered(request, 3).results) == (ERROR, [])


def test_a_delegation_token_that_is_not_created() -> None:
    token = answered(CreateDelegationTokenRequest(), 3)
    names = (token.principal_type, token.principal_name, token.token_requester_principal_name)
    assert (token.error_code, *names) == (ERROR, "User", "ANONYMOUS", "ANONYMOUS")
    assert (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms) == (-1, -1, -1)
    assert answered(CreateDelegationTokenRequest(), 2).principal_name == "ANONYMOUS"


def test_reassignments_that_are_not_listed() -> None:
    asked = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[2])]
    response = answered(ListPartitionReassignmentsRequest(topics=asked), 0)
    assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics] == [
        ("t", [2])
    ]
    assert answered(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_quotas() -> None:
    assert answered(DescribeClientQuotasRequest(), 1).entries is None
    entity = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="c")]
    (entry,) = answered(AlterClientQuotasRequest(entries=[EntryData(entity=entity)]), 1).entries
    found = [(part.entity_type, part.entity_name) for part in entry.entity]
    assert (entry.error_code, found) == (ERROR, [("user", None), ("client-id", "c")])


def test_scram_credentials() -> None:
    """P-616: the results of a failed description are as many as the users, without their names."""
    described = answered(DescribeUserScramCredentialsRequest(users=[UserName(name="u"), UserName(name="v")]), 0)
    assert [(result.user, result.error_code) for result in described.results] == [("", ERROR), ("", ERROR)]
    deletions = [ScramCredentialDeletion(name="u"), ScramCredentialDeletion(name="b")]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[ScramCredentialUpsertion(name="u")])
    assert [(result.user, result.error_code) for result in answered(request, 0).results] == [("b", ERROR), ("u", ERROR)]


def test_an_error_for_no_known_reason_has_a_text_for_few_apis() -> None:
    """As in Kafka, whose ApiError leaves out the text of UNKNOWN_SERVER_ERROR and whose Errors does not."""
    described: Any = error_response(DescribeConfigsRequest(resources=[DescribeConfigsResource()]), 4, ERROR, None)
    assert described.results[0].error_message == SERVER_ERROR_MESSAGE
    created: Any = error_response(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7, ERROR, None)
    assert created.topics[0].error_message is None
    voter: Any = error_response(AddRaftVoterRequest(), 0, ERROR, None)
    assert voter.error_message == SERVER_ERROR_MESSAGE


def test_the_summary_of_a_share_partition() -> None:
    asked = [ReadStateSummaryData(topic_id=bytes(16), partitions=[PartitionData(partition=2)])]
    (result,) = answered(ReadShareGroupStateSummaryRequest(group_id="g", topics=asked), 1).results
    assert [(part.partition, part.error_code, part.leader_epoch) for part in result.partitions] == [(2, ERROR, 0)]


def test_some_apis_have_the_text_of_the_code() -> None:
    """A registration of a controller and changes of voters, whatever the reason was."""
    for request in (ControllerRegistrationRequest(), AddRaftVoterRequest()):
        response = error_response(request, 0, ErrorCode.UNSUPPORTED_VERSION, "too old")
        assert getattr(response, "error_message", None) == "The version of API is not supported."


def test_an_exception_that_has_no_code_is_a_defect() -> None:
    """It is raised again, so that it is logged with its traceback."""
    with pytest.raises(ZeroDivisionError):
        error_code_for(ZeroDivisionError())


@pytest.mark.parametrize("request_type", [AlterShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequest])
def test_offsets_of_share_groups_have_a_text_with_every_error(request_type: type[Message]) -> None:
    """P-191: that of the error code, if the error has none itself."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    for message, shown in ((None, "Group authorization failed."), ("why", "why")):
        response: Any = error_response(request_type(), 0, code, message)
        assert (response.error_code, response.error_message, response.responses) == (code, shown, [])


@pytest.mark.parametrize("request_type", [ShareFetchRequest, ShareAcknowledgeRequest])
def test_share_fetch_and_acknowledge_have_no_text(request_type: type[Message]) -> None:
    """Kafka logs the reason alone."""
    response: Any = error_response(request_type(), 2, ErrorCode.SHARE_SESSION_NOT_FOUND, "why")
    assert (response.error_code, response.error_message) == (ErrorCode.SHARE_SESSION_NOT_FOUND, None)
