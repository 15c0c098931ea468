"""The one table of APIs. ApiVersions, dispatch, the header reader and the tests derive from it.

An entry has the versions that are served: a version is added when its tests pass. The handler of an API is
``handle_<name>`` in ``handlers/<name>.py``, its messages are in ``protocol/messages/<name>.py``; both are imported at
the first call of the API, not at the start.

Listeners of brokers and of controllers serve different APIs, according to Kafka's message definitions. An API with
another meaning on a controller's listener has its own module and handler for it: ``controller_<name>``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykbroker.named_tuple import NamedTuple
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NEVER_FLEXIBLE = 32768


class Api(NamedTuple):
    """One API: its key, the versions served, the first version with compact lengths and tagged fields.

    `advertised_lowest` differs from `lowest` only for Produce: old librdkafka requires version 0 there, although no
    version below 3 is served (P-21, KAFKA-18659). `is_own_at_controller`: controllers' listeners have their own
    handler. `is_forwardable`: a broker may send it to the controller for a client, inside an Envelope (KIP-590).
    `needs_telemetry`: ApiVersions lists it if the broker has a receiver of clients' metrics (P-203). `unstable`: a
    version that only `unstable.api.versions.enable` turns on; None if there is none (P-440).
    """

    key: ApiKey
    lowest: int
    highest: int
    flexible_from: int
    advertised_lowest: int
    listeners: tuple[ListenerKind, ...]
    is_own_at_controller: bool
    is_forwardable: bool
    needs_telemetry: bool
    unstable: int | None

    def highest_with(self, *, unstable: bool) -> int:
        """The highest version of a node with `unstable.api.versions.enable` (`unstable`) or without it."""
        return self.unstable if unstable and self.unstable is not None else self.highest

    @property
    def name(self) -> str:
        """The key's name in lower case: name of the handler's and the messages' module."""
        return self.key.name.lower()


def _api(
    key: ApiKey,
    lowest: int,
    highest: int,
    flexible_from: int,
    listeners: tuple[ListenerKind, ...] = (ListenerKind.BROKER,),
    *,
    advertised_lowest: int | None = None,
    own: bool = False,
    forwardable: bool = False,
    telemetry: bool = False,
    unstable: int | None = None,
) -> Api:
    advertised = lowest if advertised_lowest is None else advertised_lowest
    return Api(key, lowest, highest, flexible_from, advertised, listeners, own, forwardable, telemetry, unstable)


_BOTH = (ListenerKind.BROKER, ListenerKind.CONTROLLER)
_CONTROLLER = (ListenerKind.CONTROLLER,)

_ALL = (
    _api(ApiKey.PRODUCE, 3, 13, 9, advertised_lowest=0),
    _api(ApiKey.FETCH, 4, 18, 12, _BOTH, own=True),
    _api(ApiKey.LIST_OFFSETS, 1, 11, 6),
    _api(ApiKey.METADATA, 0, 13, 9),
    _api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
    _api(ApiKey.OFFSET_FETCH, 1, 10, 6),
    _api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
    _api(ApiKey.JOIN_GROUP, 0, 9, 6),
    _api(ApiKey.HEARTBEAT, 0, 4, 4),
    _api(ApiKey.LEAVE_GROUP, 0, 5, 4),
    _api(ApiKey.SYNC_GROUP, 0, 5, 4),
    _api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    _api(ApiKey.LIST_GROUPS, 0, 5, 3),
    _api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER_FLEXIBLE, _BOTH),
    _api(ApiKey.API_VERSIONS, 0, 4, 3, _BOTH),
    _api(ApiKey.CREATE_TOPICS, 2, 7, 5, _BOTH, forwardable=True),
    _api(ApiKey.DELETE_TOPICS, 1, 6, 4, _BOTH, forwardable=True),
    _api(ApiKey.DELETE_RECORDS, 0, 2, 2),
    _api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2, unstable=6),
    _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    _api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    _api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    _api(ApiKey.END_TXN, 0, 5, 3),
    _api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    _api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
    _api(ApiKey.DESCRIBE_ACLS, 1, 3, 2, _BOTH),
    _api(ApiKey.CREATE_ACLS, 1, 3, 2, _BOTH, forwardable=True),
    _api(ApiKey.DELETE_ACLS, 1, 3, 2, _BOTH, forwardable=True),
    _api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, _BOTH),
    _api(ApiKey.ALTER_CONFIGS, 0, 2, 2, _BOTH, forwardable=True),
    _api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
    _api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    _api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2, _BOTH),
    _api(ApiKey.CREATE_PARTITIONS, 0, 3, 2, _BOTH, forwardable=True),
    _api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2, _BOTH, forwardable=True),
    _api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2, _BOTH, forwardable=True),
    _api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2, _BOTH, forwardable=True),
    _api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2, _BOTH, own=True),
    _api(ApiKey.DELETE_GROUPS, 0, 2, 2),
    _api(ApiKey.ELECT_LEADERS, 0, 2, 2, _BOTH, forwardable=True),
    _api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, _BOTH, forwardable=True),
    _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, _BOTH, forwardable=True),
    _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, _BOTH, forwardable=True),
    _api(ApiKey.OFFSET_DELETE, 0, 0, NEVER_FLEXIBLE),
    _api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    _api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1, _BOTH, forwardable=True),
    _api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, _BOTH, own=True),
    _api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, _BOTH, forwardable=True),
    _api(ApiKey.VOTE, 0, 2, 0, _CONTROLLER),
    _api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1, _CONTROLLER),
    _api(ApiKey.END_QUORUM_EPOCH, 0, 1, 1, _CONTROLLER),
    _api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0, _BOTH, forwardable=True),
    _api(ApiKey.ALTER_PARTITION, 2, 3, 0, _CONTROLLER),
    _api(ApiKey.UPDATE_FEATURES, 0, 2, 0, _BOTH, forwardable=True),
    _api(ApiKey.ENVELOPE, 0, 0, 0, _CONTROLLER),
    _api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0, _CONTROLLER),
    _api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, _BOTH, own=True),
    _api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    _api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    _api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    _api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0, _CONTROLLER, forwardable=True),
    _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    _api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, 0, _CONTROLLER),
    _api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0, telemetry=True),
    _api(ApiKey.PUSH_TELEMETRY, 0, 0, 0, telemetry=True),
    _api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0, _CONTROLLER),
    _api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    _api(ApiKey.BROKER_REGISTRATION, 0, 4, 0, _CONTROLLER),
    _api(ApiKey.BROKER_HEARTBEAT, 0, 2, 0, _CONTROLLER),
    _api(ApiKey.UNREGISTER_BROKER, 0, 0, 0, _BOTH, forwardable=True),
    _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    _api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
    _api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
    _api(ApiKey.SHARE_FETCH, 1, 2, 0),
    _api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
    _api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0, _BOTH, forwardable=True),
    _api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, _BOTH, forwardable=True),
    _api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0, _CONTROLLER),
    _api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0),
    _api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0),
    _api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0),
    _api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0),
    _api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0),
    _api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
    _api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
    _api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
    _api(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, 0),
    _api(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, 0),
)

APIS: dict[int, Api] = {int(api.key): api for api in _ALL if ListenerKind.BROKER in api.listeners}
"""APIs of a broker's listeners, by key."""

CONTROLLER_APIS: dict[int, Api] = {int(api.key): api for api in _ALL if ListenerKind.CONTROLLER in api.listeners}
"""APIs of a controller's listeners, by key."""

APIS_OF = {ListenerKind.BROKER: APIS, ListenerKind.CONTROLLER: CONTROLLER_APIS}

FLEXIBLE_FROM: dict[int, int] = {int(api.key): api.flexible_from for api in _ALL}
"""First version of each API whose header has tagged fields, for the header reader."""


def camel_case(name: str) -> str:
    """Kafka's spelling of an API's name: ``list_offsets`` becomes ``ListOffsets``."""
    return "".join(word.capitalize() for word in name.split("_"))


def load_handler(
    api: Api, kind: ListenerKind = ListenerKind.BROKER
) -> tuple[type[Any], Callable[[Any, Any], Coroutine[Any, Any, Any]]]:
    """Imports the request class and the handler function of an API on a kind of listener."""
    from importlib import import_module

    name = f"controller_{api.name}" if api.is_own_at_controller and kind is ListenerKind.CONTROLLER else api.name
    messages = import_module(f"pykbroker.protocol.messages.{api.name}")
    handler = import_module(f"pykbroker.handlers.{name}")
    return getattr(messages, camel_case(api.name) + "Request"), getattr(handler, f"handle_{name}")
