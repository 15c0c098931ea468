"""APIs that one node without authorizer, quotas or users answers shortly: P-155, P-160 and reassignments."""

from __future__ import annotations

import pytest

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.errors import CloseConnection
from pykbroker.handlers.alter_partition_reassignments import handle_alter_partition_reassignments
from pykbroker.handlers.create_acls import handle_create_acls
from pykbroker.handlers.delete_acls import handle_delete_acls
from pykbroker.handlers.describe_acls import handle_describe_acls
from pykbroker.handlers.describe_client_quotas import handle_describe_client_quotas
from pykbroker.handlers.describe_user_scram_credentials import handle_describe_user_scram_credentials
from pykbroker.handlers.list_partition_reassignments import handle_list_partition_reassignments
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import (
    ClientQuotaRecord,
    EntityData,
    PartitionChangeRecord,
    UserScramCredentialRecord,
)
from pykbroker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker.protocol.messages.describe_acls import DescribeAclsRequest
from pykbroker.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from pykbroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from pykbroker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from pykbroker.requests.context import RequestContext
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, apply_records, call, make_context, make_services
from tests.support.services import Services


def _with_authorizer() -> RequestContext[Services]:
    """Everyone may do everything as long as there is no entry."""
    services = make_services()
    metadata = services.metadata
    authorizer = StandardAuthorizer(lambda: metadata.image.acls, frozenset(), True)
    return make_context(3, services=services.replaced(authorizer=authorizer))


def test_acl_apis_say_that_there_is_no_authorizer() -> None:
    """P-155."""
    context = make_context(3)
    assert answer(handle_describe_acls, context, _describe_filter()).error_code == ErrorCode.SECURITY_DISABLED
    new = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    created = answer(handle_create_acls, context, CreateAclsRequest(creations=[new, new]))
    assert [result.error_code for result in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
    deleted = answer(handle_delete_acls, context, DeleteAclsRequest(filters=[_delete_filter()]))
    assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]


def _describe_filter(**change: int) -> DescribeAclsRequest:
    elements = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1, **change}
    return DescribeAclsRequest(**elements)  # type: ignore[arg-type]


def _delete_filter(**change: int) -> DeleteAclsFilter:
    elements = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1, **change}
    return DeleteAclsFilter(**elements)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"operation": 0}, {"permission_type": 0}]
)
def test_unknown_acl_elements_end_the_connection(change: dict[str, int]) -> None:
    """P-4: to Kafka they are a request that cannot be read."""
    context = make_context(3)
    with pytest.raises(CloseConnection):
        answer(handle_describe_acls, context, _describe_filter(**change))
    with pytest.raises(CloseConnection):
        answer(handle_delete_acls, context, DeleteAclsRequest(filters=[_delete_filter(**change)]))
    with pytest.raises(CloseConnection):
        answer(handle_create_acls, context, CreateAclsRequest(creations=[AclCreation()]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type_filter": 8}, "Unknown patternFilter."),
        ({"pattern_type_filter": 5}, "Unknown patternFilter."),
        ({"operation": 99}, "Unknown entryFilter."),
        ({"permission_type": -1}, "Unknown entryFilter."),
    ],
)
def test_acl_elements_that_stand_for_nothing_match_nothing(change: dict[str, int], message: str) -> None:
    """P-155: only the number of UNKNOWN itself cannot be read."""
    context = _with_authorizer()
    described = answer(handle_describe_acls, context, _describe_filter(**change))
    assert (described.error_code, described.resources) == (ErrorCode.NONE, [])
    deleted = answer(handle_delete_acls, context, DeleteAclsRequest(filters=[_delete_filter(**change)])).filter_results
    assert [(d.error_code, d.error_message) for d in deleted] == [(ErrorCode.INVALID_REQUEST, message)]


def test_an_acl_of_an_unknown_operation_is_refused_by_itself() -> None:
    """P-155; the text of one that succeeds is empty and not absent."""
    elements = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "permission_type": 3}
    new = [AclCreation(operation=operation, **elements) for operation in (32, 3)]  # type: ignore[arg-type]
    results = answer(handle_create_acls, _with_authorizer(), CreateAclsRequest(creations=new)).results
    assert [(r.error_code, r.error_message) for r in results] == [
        (ErrorCode.INVALID_REQUEST, "Invalid operation UNKNOWN"),
        (ErrorCode.NONE, ""),
    ]


def _with_quotas() -> RequestContext[Services]:
    context = make_context(1)
    cache = context.services.metadata
    entities: list[list[tuple[str, str | None]]] = [
        [("user", "anna")],
        [("user", None)],
        [("user", "anna"), ("client-id", "app")],
        [("ip", "10.0.0.1")],
    ]
    cache.image = apply_records(
        cache.image,
        [
            ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key="producer_byte_rate",
                value=float(number),
            )
            for number, entity in enumerate(entities)
        ],
    )
    return context


@pytest.mark.parametrize(
    ("components", "strict", "values"),
    [
        ([], False, [0, 1, 2, 3]),
        ([], True, []),
        ([("user", 0, "anna")], False, [0, 2]),
        ([("user", 0, "anna")], True, [0]),
        ([("user", 1, None)], False, [1]),
        ([("user", 2, None)], True, [0, 1]),
        ([("user", 2, None), ("client-id", 0, "app")], False, [2]),
        ([("ip", 2, None)], False, [3]),
    ],
)
def test_quotas_of_a_default_entity_are_not_those_of_a_named_one(
    components: list[tuple[str, int, str | None]], strict: bool, values: list[float]
) -> None:
    """P-160."""
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    entries = call(handle_describe_client_quotas, _with_quotas(), request).entries
    assert sorted(value.value for entry in entries for value in entry.values) == values


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, "x"), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", 0, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 9, "x")], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_quota_filters_that_make_no_sense(components: list[tuple[str, int, str | None]], code: ErrorCode) -> None:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    )
    response = answer(handle_describe_client_quotas, make_context(1), request)
    assert (response.error_code, response.entries) == (code, None)


def test_scram_credentials() -> None:
    context = make_context(0)
    cache = context.services.metadata
    cache.image = apply_records(cache.image, [UserScramCredentialRecord(name="anna", mechanism=1, iterations=4096)])
    all_users = call(handle_describe_user_scram_credentials, context, DescribeUserScramCredentialsRequest(users=None))
    assert [
        (result.user, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in all_users.results
    ] == [("anna", [(1, 4096)])]
    request = DescribeUserScramCredentialsRequest(
        users=[UserName(name="anna"), UserName(name="bert"), UserName(name="carl"), UserName(name="carl")]
    )
    results = call(handle_describe_user_scram_credentials, context, request).results
    assert {result.user: result.error_code for result in results} == {
        "anna": ErrorCode.NONE,
        "bert": ErrorCode.RESOURCE_NOT_FOUND,
        "carl": ErrorCode.DUPLICATE_RESOURCE,
    }


def test_scram_users_are_described_in_kafkas_order() -> None:
    """P-616: as Apache Kafka 4.3.1 did."""
    context = make_context(0)
    cache = context.services.metadata
    records = [UserScramCredentialRecord(name=f"su{i}", mechanism=1 + i % 2, iterations=4096) for i in range(14)]
    cache.image = apply_records(cache.image, records)
    everybody = call(handle_describe_user_scram_credentials, context, DescribeUserScramCredentialsRequest(users=None))
    expected = [f"su{number}" for number in (1, 0, 3, 2, 5, 13, 4, 7, 11, 6, 12, 9, 8, 10)]
    assert [result.user for result in everybody.results] == expected
    named = DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in ("su5", "su1", "nope", "su3")])
    results = call(handle_describe_user_scram_credentials, context, named).results
    assert [result.user for result in results] == ["su3", "su5", "nope", "su1"]


def test_reassignments_that_fail_together_have_a_result_for_each_partition() -> None:
    context = make_context(1)
    context.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT)  # type: ignore[attr-defined]
    partitions = [ReassignablePartition(partition_index=number, replicas=[1]) for number in (0, 1)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    response = answer(handle_alter_partition_reassignments, context, request)
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    (topic,) = response.responses
    found = [(partition.partition_index, partition.error_code) for partition in topic.partitions]
    assert (response.error_code, topic.name, found) == (timed_out, "t", [(0, timed_out), (1, timed_out)])


def test_reassignments_are_those_of_the_image() -> None:
    services = make_services(broker_ids=(1, 2))
    services.controller.submit_now(CreateTopics([NewTopic("t", 2)]))  # type: ignore[attr-defined]
    context = make_context(0, services=services)
    everything = ListPartitionReassignmentsRequest(topics=None)
    assert call(handle_list_partition_reassignments, context, everything).topics == []
    cache = services.metadata
    topic_id = cache.image.topics_by_name["t"].topic_id
    change = PartitionChangeRecord(topic_id=topic_id, partition_id=1, replicas=[1, 2], adding_replicas=[2])
    cache.image = apply_records(cache.image, [change])
    for request in (
        everything,
        ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 1, 9]),
                ListPartitionReassignmentsTopics(name="nope", partition_indexes=[0]),
            ]
        ),
    ):
        (topic,) = call(handle_list_partition_reassignments, context, request).topics
        assert [(moving.partition_index, moving.adding_replicas) for moving in topic.partitions] == [(1, [2])]


def test_entries_of_one_resource_are_described_together() -> None:
    """P-155: they are grouped by resource and pattern type."""
    context = _with_authorizer()

    def new(name: str, pattern_type: int, principal: str) -> AclCreation:
        return AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=pattern_type,
            principal=principal,
            host="*",
            operation=3,
            permission_type=3,
        )

    creations = [new("t", 3, "User:a"), new("t", 3, "User:b"), new("t", 4, "User:a")]
    created = answer(handle_create_acls, context, CreateAclsRequest(creations=creations))
    assert [result.error_code for result in created.results] == [ErrorCode.NONE] * 3
    every = _describe_filter()
    every.resource_name_filter = every.principal_filter = every.host_filter = None
    described = answer(handle_describe_acls, context, every)
    assert sorted(
        (found.resource_name, found.pattern_type, sorted(acl.principal for acl in found.acls))
        for found in described.resources
    ) == [("t", 3, ["User:a", "User:b"]), ("t", 4, ["User:a"])]


def test_a_deletion_of_entries_that_could_not_be_stored() -> None:
    """The error of the whole request is that of each filter."""
    context = _with_authorizer()
    context.services.controller.failure = CommandRefused(ErrorCode.REQUEST_TIMED_OUT, "too late")  # type: ignore[attr-defined]
    request = DeleteAclsRequest(filters=[_delete_filter(), _delete_filter()])
    results = answer(handle_delete_acls, context, request).filter_results
    assert [(result.error_code, result.error_message) for result in results] == [
        (ErrorCode.REQUEST_TIMED_OUT, "too late")
    ] * 2
