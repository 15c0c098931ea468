"""Error responses of all APIs, with which Kafka responds if a handler fails.

Kafka has one written by hand for each API. Here they are built from the message declarations: the elements of the
response for topics, partitions, groups or resources are made from those of the request, and every error code field gets
the error. Imported at the first failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pykbroker.java_order import string_order
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import SERVER_ERROR_MESSAGE, TEXTS
from pykbroker.protocol.fields import Field, Message, response_class
from pykbroker.protocol.records.batch import NO_PRODUCER_EPOCH

# Kafka repeats the error for each part of the request only if the response has no error code on top. These APIs have it
# on top and in the parts, up to the given version.
_ON_TOP_AND_IN_PARTS = {
    ApiKey.METADATA: 32767,
    ApiKey.FETCH: 12,
    ApiKey.ELECT_LEADERS: 32767,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 32767,
}

# Fields that identify a part, each with its synonyms; no other fields of a request are repeated. The top of a response
# repeats none.
_IDENTITIES = (
    ("name", "topic", "topic_name"),
    ("topic_id",),
    ("index", "partition", "partition_index", "partition_id"),
    ("group_id", "key"),
    ("resource_type",),
    ("resource_name",),
    ("producer_id",),
    ("transactional_id",),
)

# Kafka's values for an absent offset, epoch or node, if the declaration has another default.
_NOTHING = {
    "base_offset": -1,
    "committed_offset": -1,
    "end_offset": -1,
    "high_watermark": -1,
    "leader_epoch": -1,
    "low_watermark": -1,
    "node_id": -1,
    "port": -1,
    "records": b"",
    "timestamp": -1,
}


NULLABLE_PROTOCOL_VERSION, TOPICS_BY_ID_VERSION, TRANSACTIONS_VERSION, LOG_DIRS_ERROR_VERSION = 7, 6, 4, 3
"""First versions of JoinGroup, DeleteTopics, AddPartitionsToTxn and DescribeLogDirs with these parts."""
TOKEN_REQUESTER_VERSION = 3

_ANONYMOUS = ("User", "ANONYMOUS")

_TEXT_OF_SERVER_ERROR = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
)
"""APIs whose response to a handler that fails for no known reason has the text of UNKNOWN_SERVER_ERROR."""

_TEXT_OF_CODE = (
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.CONTROLLER_REGISTRATION,
)
"""APIs whose error response has the text of the error code, whatever the reason was."""

_TEXT_OF_CODE_WITHOUT_REASON = (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS)
"""APIs whose error response has the text of the error code if the error has none."""

_WITHOUT_TEXT = (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE)
"""APIs whose error response has no text although it has a field for one."""


def error_response(request: Message, version: int, error_code: int, message: str | None) -> Message | None:
    """The response to `request` with the error in all its parts; None if the client expects no response (acks=0).

    Where the error has no message, the response has none either, except for some APIs.
    """
    key = ApiKey(request.KEY)
    if key is ApiKey.PRODUCE and getattr(request, "acks", 1) == 0:
        return None
    if key in _WITHOUT_TEXT:
        message = None
    if key in _TEXT_OF_CODE:
        message = TEXTS.get(ErrorCode(error_code), message)
    if message is None and key in _TEXT_OF_CODE_WITHOUT_REASON:
        message = TEXTS.get(ErrorCode(error_code))
    if message is None and error_code == ErrorCode.UNKNOWN_SERVER_ERROR and key in _TEXT_OF_SERVER_ERROR:
        message = SERVER_ERROR_MESSAGE
    response_type = response_class(type(request))
    parts: Any = request
    if key is ApiKey.ALTER_REPLICA_LOG_DIRS:
        parts = [topic for directory in getattr(request, "dirs", ()) for topic in directory.topics]
    has_top = _has_error_code(response_type, version)
    goes_deeper = not has_top or version <= _ON_TOP_AND_IN_PARTS.get(key, -1)
    response = _Filler(version, error_code, message).fill(response_type, parts, goes_deeper)
    complete = _COMPLETIONS.get(key)
    if complete is not None:
        complete(response, request, version, error_code, message)
    return response


class _Filler:
    """Builds the response struct for a part of the request."""

    def __init__(self, version: int, error_code: int, message: str | None) -> None:
        self._version = version
        self._error_code = error_code
        self._message = message

    def fill(self, response_type: type[Message], part: Any, goes_deeper: bool) -> Message:
        values: dict[str, Any] = {}
        for field in response_type.FIELDS:
            if self._version not in field.versions:
                continue
            if field.name == "error_code":
                values[field.name] = self._error_code
            elif field.name == "error_message":
                values[field.name] = self._message
            elif field.kind == "array":
                if (
                    goes_deeper
                    and field.element.kind == "struct"
                    and _leads_to_error(field.element.element, self._version)
                ):
                    values[field.name] = self._elements(field, part)
            elif field.name in _NOTHING:
                values[field.name] = _NOTHING[field.name]
        return response_type(**values)

    def _elements(self, field: Field, part: Any) -> list[Message]:
        element_type = field.element.element
        goes_deeper = not _has_error_code(element_type, self._version)
        return [self._element(element_type, item, goes_deeper) for item in _items(part, self._version)]

    def _element(self, element_type: type[Message], item: Any, goes_deeper: bool) -> Message:
        element = self.fill(element_type, item, goes_deeper)
        for field in element_type.FIELDS:
            if self._version in field.versions and (found := _named(field.name, item)) is not None:
                setattr(element, field.name, found)
        if not isinstance(item, Message):
            # A plain string or number, for the first field of its type.
            for field in element_type.FIELDS:
                holds = field.kind == "string" if isinstance(item, str) else field.kind == "int32"
                if self._version in field.versions and holds and field.name != "error_message":
                    setattr(element, field.name, item)
                    break
        return element


def _items(part: Any, version: int) -> Sequence[Any]:
    """The elements that the response repeats: the first array of the request that is not empty."""
    if isinstance(part, list):
        return part
    if not isinstance(part, Message):
        return ()
    for field in part.FIELDS:
        if field.kind == "array" and version in field.versions and getattr(part, field.name):
            items: Sequence[Any] = getattr(part, field.name)
            return items
    return ()


def _named(name: str, part: Any) -> Any:
    """Value of the request's field of that name or a synonym; None without such a field."""
    if not isinstance(part, Message):
        return None
    names = next((group for group in _IDENTITIES if name in group), ())
    declared = {field.name for field in part.FIELDS if field.kind != "array"}
    return next((getattr(part, known) for known in names if known in declared), None)


def _has_error_code(message_type: type[Message], version: int) -> bool:
    return any(field.name == "error_code" and version in field.versions for field in message_type.FIELDS)


def _leads_to_error(message_type: type[Message], version: int) -> bool:
    return _has_error_code(message_type, version) or any(
        field.kind == "array"
        and version in field.versions
        and field.element.kind == "struct"
        and _leads_to_error(field.element.element, version)
        for field in message_type.FIELDS
    )


# Further fields of Kafka's error responses, by API. Arguments: response, request, version, error code, message.


def _complete_fetch(response: Any, request: Any, *_: Any) -> None:
    response.session_id = request.session_id
    if not request.topics:
        response.responses = []  # not the forgotten ones


def _complete_join_group(response: Any, _request: Any, version: int, *_: Any) -> None:
    if version >= NULLABLE_PROTOCOL_VERSION:
        response.protocol_name = None


def _complete_delete_topics(response: Any, request: Any, version: int, *_: Any) -> None:
    if version >= TOPICS_BY_ID_VERSION:
        for result, topic in zip(response.responses, request.topics, strict=True):
            result.name = topic.name


def _complete_init_producer_id(response: Any, *_: Any) -> None:
    response.producer_epoch = NO_PRODUCER_EPOCH


def _complete_add_partitions_to_txn(response: Any, request: Any, version: int, error_code: int, _: Any) -> None:
    from pykbroker.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnPartitionResult,
        AddPartitionsToTxnTopicResult,
    )

    if version < TRANSACTIONS_VERSION:
        response.results_by_topic_v3_and_below = [
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=error_code)
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]


def _complete_describe_log_dirs(response: Any, _request: Any, version: int, *_: Any) -> None:
    if version < LOG_DIRS_ERROR_VERSION:
        response.results = []


def _complete_create_delegation_token(response: Any, _request: Any, version: int, *_: Any) -> None:
    response.principal_type, response.principal_name = _ANONYMOUS
    if version >= TOKEN_REQUESTER_VERSION:
        response.token_requester_principal_type, response.token_requester_principal_name = _ANONYMOUS
    response.issue_timestamp_ms = response.expiry_timestamp_ms = response.max_timestamp_ms = -1


def _complete_list_partition_reassignments(response: Any, request: Any, *_: Any) -> None:
    from pykbroker.protocol.messages.list_partition_reassignments import (
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )

    # Kafka's response repeats the requested partitions.
    response.topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[OngoingPartitionReassignment(partition_index=number) for number in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]


def _complete_describe_client_quotas(response: Any, *_: Any) -> None:
    response.entries = None


def _complete_alter_client_quotas(response: Any, request: Any, *_: Any) -> None:
    from pykbroker.protocol.messages.alter_client_quotas import EntityDataResponse

    for result, entry in zip(response.entries, request.entries, strict=True):
        result.entity = [
            EntityDataResponse(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
        ]


def _complete_describe_user_scram_credentials(
    response: Any, request: Any, _version: int, error_code: int, message: str | None
) -> None:
    from pykbroker.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResult

    # Kafka's results do not have the names.
    response.results = [
        DescribeUserScramCredentialsResult(error_code=error_code, error_message=message) for _ in request.users or ()
    ]


def _complete_alter_user_scram_credentials(
    response: Any, request: Any, _version: int, error_code: int, message: str | None
) -> None:
    from pykbroker.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResult

    users = {change.name for changes in (request.deletions, request.upsertions) for change in changes}
    response.results = [
        AlterUserScramCredentialsResult(user=user, error_code=error_code, error_message=message)
        for user in sorted(users, key=string_order)
    ]


def _complete_read_share_group_state_summary(response: Any, *_: Any) -> None:
    for result in response.results:
        for partition in result.partitions:
            partition.leader_epoch = 0


_COMPLETIONS: dict[ApiKey, Callable[[Any, Any, int, int, str | None], None]] = {
    ApiKey.FETCH: _complete_fetch,
    ApiKey.JOIN_GROUP: _complete_join_group,
    ApiKey.DELETE_TOPICS: _complete_delete_topics,
    ApiKey.INIT_PRODUCER_ID: _complete_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _complete_add_partitions_to_txn,
    ApiKey.DESCRIBE_LOG_DIRS: _complete_describe_log_dirs,
    ApiKey.CREATE_DELEGATION_TOKEN: _complete_create_delegation_token,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _complete_list_partition_reassignments,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _complete_describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: _complete_alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _complete_describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _complete_alter_user_scram_credentials,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _complete_read_share_group_state_summary,
}
