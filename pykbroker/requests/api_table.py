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

    `advertised_from`: lowest version in ApiVersions if that is not `lowest`. Only Produce has one: old librdkafka needs
    version 0 there, although none below 3 is served (P-21, KAFKA-18659). `is_own_at_controller`: controllers'
    listeners have their own handler. `is_refused_at_controller`: they list the API and refuse it (P-378).
    `is_forwardable`: a broker may send it to the controller for a client, inside an Envelope (KIP-590).
    `needs_telemetry`: ApiVersions lists it if the broker has a receiver of clients' metrics (P-203). `unstable`: a
    version that only `unstable.api.versions.enable` turns on; None if there is none (P-440).
    """

    key: ApiKey
    lowest: int
    highest: int
    flexible_from: int
    listeners: tuple[ListenerKind, ...] = (ListenerKind.BROKER,)
    advertised_from: int | None = None
    is_own_at_controller: bool = False
    is_refused_at_controller: bool = False
    is_forwardable: bool = False
    needs_telemetry: bool = False
    unstable: int | None = None

    @property
    def advertised_lowest(self) -> int:
        """The lowest version in ApiVersions."""
        return self.lowest if self.advertised_from is None else self.advertised_from

    def highest_with(self, *, unstable: bool) -> int:
        """The highest version of a node with `unstable.api.versions.enable` (`unstable`) or without it."""
        return self.unstable if unstable and self.unstable is not None else self.highest

    @property
    def name(self) -> str:
        """The key's name in lower case: name of the handler's and the messages' module."""
        return self.key.name.lower()


_BOTH = (ListenerKind.BROKER, ListenerKind.CONTROLLER)
_CONTROLLER = (ListenerKind.CONTROLLER,)

_ALL = (
    Api(ApiKey.PRODUCE, 3, 13, 9, advertised_from=0),
    Api(ApiKey.FETCH, 4, 18, 12, _BOTH, is_own_at_controller=True),
    Api(ApiKey.LIST_OFFSETS, 1, 11, 6),
    Api(ApiKey.METADATA, 0, 13, 9),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
    Api(ApiKey.OFFSET_FETCH, 1, 10, 6),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
    Api(ApiKey.JOIN_GROUP, 0, 9, 6),
    Api(ApiKey.HEARTBEAT, 0, 4, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
    Api(ApiKey.SYNC_GROUP, 0, 5, 4),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    Api(ApiKey.LIST_GROUPS, 0, 5, 3),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, NEVER_FLEXIBLE, _BOTH),
    Api(ApiKey.API_VERSIONS, 0, 4, 3, _BOTH),
    Api(ApiKey.CREATE_TOPICS, 2, 7, 5, _BOTH, is_forwardable=True),
    Api(ApiKey.DELETE_TOPICS, 1, 6, 4, _BOTH, is_forwardable=True),
    Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 5, 2, unstable=6),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    Api(ApiKey.END_TXN, 0, 5, 3),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2, _BOTH),
    Api(ApiKey.CREATE_ACLS, 1, 3, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.DELETE_ACLS, 1, 3, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, _BOTH),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2, _BOTH),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2, _BOTH, is_refused_at_controller=True),
    Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
    Api(ApiKey.ELECT_LEADERS, 0, 2, 2, _BOTH, is_forwardable=True),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, _BOTH, is_forwardable=True),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.OFFSET_DELETE, 0, 0, NEVER_FLEXIBLE),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1, _BOTH, is_forwardable=True),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, _BOTH, is_refused_at_controller=True),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.VOTE, 0, 2, 0, _CONTROLLER),
    Api(ApiKey.BEGIN_QUORUM_EPOCH, 0, 1, 1, _CONTROLLER),
    Api(ApiKey.END_QUORUM_EPOCH, 0, 1, 1, _CONTROLLER),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.ALTER_PARTITION, 2, 3, 0, _CONTROLLER),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.ENVELOPE, 0, 0, 0, _CONTROLLER),
    Api(ApiKey.FETCH_SNAPSHOT, 0, 1, 0, _CONTROLLER),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, _BOTH, is_own_at_controller=True),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0, _CONTROLLER, is_forwardable=True),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    Api(ApiKey.CONTROLLER_REGISTRATION, 0, 0, 0, _CONTROLLER),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0, needs_telemetry=True),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0, 0, needs_telemetry=True),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, 0, _CONTROLLER),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    Api(ApiKey.BROKER_REGISTRATION, 0, 4, 0, _CONTROLLER),
    Api(ApiKey.BROKER_HEARTBEAT, 0, 2, 0, _CONTROLLER),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
    Api(ApiKey.SHARE_FETCH, 1, 2, 0),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
    Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, _BOTH, is_forwardable=True),
    Api(ApiKey.UPDATE_RAFT_VOTER, 0, 0, 0, _CONTROLLER),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0),
    Api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, 0),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, 0),
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

    is_controller = kind is ListenerKind.CONTROLLER
    name = f"controller_{api.name}" if api.is_own_at_controller and is_controller else api.name
    module, function = f"handlers.{name}", f"handle_{name}"
    if api.is_refused_at_controller and is_controller:
        module, function = "requests.controller_refusal", "refuse_at_controller"
    messages = import_module(f"pykbroker.protocol.messages.{api.name}")
    handler = import_module(f"pykbroker.{module}")
    return getattr(messages, camel_case(api.name) + "Request"), getattr(handler, function)
