"""Requests on a controller's port that only nodes of the cluster may send."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import Acl
from pykbroker.controller.metadata.topics import CreateTopics, NewTopic
from pykbroker.errors import KafkaError
from pykbroker.handlers.alter_partition import handle_alter_partition
from pykbroker.handlers.broker_heartbeat import handle_broker_heartbeat
from pykbroker.handlers.controller_fetch import handle_controller_fetch
from pykbroker.handlers.sasl_authenticate import handle_sasl_authenticate
from pykbroker.handlers.update_raft_voter import handle_update_raft_voter
from pykbroker.protocol.acl_codes import (
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DELETE,
    DESCRIBE,
    LITERAL,
)
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_fields import error_codes
from pykbroker.protocol.error_texts import SERVER_ERROR_MESSAGE
from pykbroker.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from pykbroker.protocol.messages.alter_partition import AlterPartitionRequest
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker.protocol.messages.fetch import FetchRequest
from pykbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pykbroker.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from pykbroker.requests.api_table import CONTROLLER_APIS, camel_case, load_handler
from pykbroker.requests.context import RequestContext
from pykbroker.requests.error_responses import error_response
from pykbroker.security.audit import AUTHORIZATION_FAILED
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import answer, call, make_context, make_services
from tests.support.services import Services

NEEDS = {
    **{key: CLUSTER_ACTION for key, api in CONTROLLER_APIS.items() if api.listeners == (ListenerKind.CONTROLLER,)},
    ApiKey.FETCH: CLUSTER_ACTION,
    ApiKey.DESCRIBE_CLUSTER: ALTER,
    ApiKey.ADD_RAFT_VOTER: ALTER,
    ApiKey.REMOVE_RAFT_VOTER: ALTER,
}
"""As in Kafka's ControllerApis; DescribeCluster needs DESCRIBE at most on a broker's port."""


def context_of(key: int, *operations: int) -> RequestContext[Services]:
    """A client that may do these to the cluster and nothing else."""
    acls = {
        bytes(15) + bytes([operation]): Acl(CLUSTER, CLUSTER_NAME, LITERAL, "User:node", "*", operation, ALLOW)
        for operation in operations
    }
    services = make_services().replaced(authorizer=StandardAuthorizer(lambda: acls, frozenset(), False))
    context = make_context(services=services, api_key=ApiKey(key), listener_name="CONTROLLER")
    context.connection.listener_kind = ListenerKind.CONTROLLER
    context.connection.principal = "User:node"
    return context


@pytest.mark.parametrize("key", NEEDS, ids=lambda key: ApiKey(key).name)
def test_who_is_no_node_is_refused(key: int) -> None:
    api = CONTROLLER_APIS[key]
    _, handler = load_handler(api, ListenerKind.CONTROLLER)
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    request = getattr(module, camel_case(api.name) + "Request")()
    others = tuple({ALTER, CLUSTER_ACTION} - {NEEDS[key]})
    with pytest.raises(KafkaError) as refused:
        call(handler, context_of(key, *others), request)
    assert refused.value.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_who_may_is_heard() -> None:
    """Past the authorizer it is the controller that objects: this broker's epoch is another."""
    with pytest.raises(KafkaError) as refused:
        call(
            handle_alter_partition,
            context_of(ApiKey.ALTER_PARTITION, CLUSTER_ACTION),
            AlterPartitionRequest(broker_id=1),
        )
    assert refused.value.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_node_that_never_leads_says_so() -> None:
    with pytest.raises(KafkaError) as refused:
        call(handle_broker_heartbeat, context_of(ApiKey.BROKER_HEARTBEAT, CLUSTER_ACTION), BrokerHeartbeatRequest())
    assert refused.value.error_code == ErrorCode.NOT_CONTROLLER


ADMIN: dict[int, dict[str, object]] = {
    ApiKey.CREATE_TOPICS: {"topics": [create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)]},
    ApiKey.DELETE_TOPICS: {"topics": [delete_topics.DeleteTopicState(name="t")], "timeout_ms": 1000},
    ApiKey.CREATE_PARTITIONS: {
        "topics": [create_partitions.CreatePartitionsTopic(name="t", count=5)],
        "timeout_ms": 1000,
    },
    ApiKey.DESCRIBE_ACLS: {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3},
    ApiKey.CREATE_ACLS: {
        "creations": [
            create_acls.AclCreation(
                resource_type=2,
                resource_name="t",
                resource_pattern_type=3,
                principal="User:x",
                host="*",
                operation=3,
                permission_type=3,
            )
        ]
    },
    ApiKey.DELETE_ACLS: {
        "filters": [
            delete_acls.DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter="t", pattern_type_filter=3, operation=1, permission_type=1
            )
        ]
    },
    ApiKey.ALTER_CONFIGS: {"resources": [alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
    },
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [describe_configs.DescribeConfigsResource(resource_type=4, resource_name="1")]
    },
    ApiKey.ELECT_LEADERS: {},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {},
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [
            alter_client_quotas.EntryData(
                entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="x")],
                ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1.0)],
            )
        ]
    },
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [alter_user_scram_credentials.ScramCredentialDeletion(name="x", mechanism=1)]
    },
    ApiKey.DESCRIBE_QUORUM: {},
    ApiKey.UPDATE_FEATURES: {},
    ApiKey.UNREGISTER_BROKER: {},
    ApiKey.CREATE_DELEGATION_TOKEN: {"owner_principal_type": "User", "owner_principal_name": "other"},
}
"""Requests of administrators that a controller's port serves, each of which must be refused."""

UNGUARDED = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    # Decided by the token's owner and renewers alone.
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    # Listed, and not served.
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
}


def test_every_api_of_the_port_is_among_these() -> None:
    assert set(CONTROLLER_APIS) == NEEDS.keys() | ADMIN.keys() | UNGUARDED


@pytest.mark.parametrize("key", ADMIN, ids=lambda key: ApiKey(key).name)
def test_a_client_without_rights_is_refused_at_a_controller(key: int) -> None:
    """P-257: a controller's port decides as a broker's does, also for requests that no broker has checked."""
    api = CONTROLLER_APIS[key]
    _, handler = load_handler(api, ListenerKind.CONTROLLER)
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    request = getattr(module, camel_case(api.name) + "Request")(**ADMIN[key])
    context = context_of(key)
    context.api_version = api.highest
    context.connection.is_forwarded = True
    assert AUTHORIZATION_FAILED.intersection(error_codes(answer(handler, context, request)))
    assert context.refusals


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_DELEGATION_TOKEN])
def test_what_a_controller_lists_and_does_not_serve(key: ApiKey) -> None:
    """P-378: also for a client that a broker would serve."""
    api = CONTROLLER_APIS[key]
    _, handler = load_handler(api, ListenerKind.CONTROLLER)
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    request = getattr(module, camel_case(api.name) + "Request")()
    with pytest.raises(KafkaError) as refused:
        call(handler, context_of(key, DESCRIBE), request)
    response = error_response(request, api.highest, refused.value.error_code, refused.value.message)
    assert getattr(response, "error_code", None) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert getattr(response, "error_message", None) is None, "as in Kafka, whose ApiError leaves the general text out"


def incremental(kind: int, name: str, *configs: tuple[str, int, str | None]) -> object:
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[incremental_alter_configs.AlterableConfig(name=k, config_operation=o, value=v) for k, o, v in configs],
    )


def replacement(kind: int, name: str, *configs: tuple[str, str | None]) -> object:
    return alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=k, value=v) for k, v in configs],
    )


def altered(key: int, resources: list[object], *operations: int) -> list[tuple[int, str | None]]:
    """Codes and texts of a controller's port, for a client that is connected to it itself."""
    api = CONTROLLER_APIS[key]
    _, handler = load_handler(api, ListenerKind.CONTROLLER)
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    context = context_of(key, *operations)
    context.api_version = api.highest
    response = answer(handler, context, getattr(module, camel_case(api.name) + "Request")(resources=resources))
    return [(result.error_code, result.error_message) for result in response.responses]


def test_a_controller_looks_at_types_and_rights_before_configs() -> None:
    """P-371: with the codes and texts of ControllerApis, which are not those of a broker."""
    twice = ("retention.ms", 0, "1"), ("retention.ms", 0, None)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    resources = [
        incremental(99, "x"),
        incremental(16, "m", *twice),
        incremental(16, "n"),
        incremental(16, "n"),
        incremental(8, "1", ("root", 0, "nonsense")),
    ]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources) == [
        (ErrorCode.UNSUPPORTED_VERSION, "Unknown resource type 99."),
        (ErrorCode.INVALID_REQUEST, "Duplicate resource."),
        refused,
        refused,
    ]
    loggers = [replacement(8, "1"), replacement(16, "m", ("interval.ms", None))]
    assert altered(ApiKey.ALTER_CONFIGS, loggers) == [
        (ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER."),
        refused,
    ]


def test_what_a_controller_takes_each_time_that_it_comes() -> None:
    """P-371: unknown types, and loggers where their levels can be changed; in ControllerApis' order."""
    unknown = ErrorCode.UNSUPPORTED_VERSION, "Unknown resource type 99."
    twice = ErrorCode.INVALID_REQUEST, "Duplicate resource."
    root = incremental(8, "x", ("root", 0, "INFO"))
    no_topic = incremental(2, "no-topic")
    resources = [root, incremental(16, "m"), no_topic, root, incremental(99, "x"), incremental(99, "x"), no_topic]
    found = altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, CLUSTER_ACTION, ALTER_CONFIGS)
    level = ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"
    assert found == [twice, unknown, unknown, (0, None), level, level]
    resources = [incremental(16, "m"), incremental(2, "t"), incremental(16, "m"), root]
    found = altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, CLUSTER_ACTION)
    assert found == [twice, (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."), level]
    loggers = [replacement(8, "1"), replacement(99, "x"), replacement(8, "1"), replacement(99, "x")]
    assert altered(ApiKey.ALTER_CONFIGS, loggers, ALTER_CONFIGS) == [twice, unknown, unknown]


def test_levels_of_loggers_need_the_rights_of_a_node_at_a_controller() -> None:
    """P-371: CLUSTER_ACTION, where a broker asks for ALTER_CONFIGS."""
    resources = [incremental(8, "x", ("root", 0, "INFO"))]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, ALTER_CONFIGS) == [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    ]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, CLUSTER_ACTION) == [
        (ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x")
    ]


def test_levels_of_loggers_at_a_controller() -> None:
    """P-371: a null level is no deletion, and an operation that does not exist an error with a text."""
    ((code, message),) = altered(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, [incremental(8, "1", ("root", 0, None))], CLUSTER_ACTION
    )
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert message.startswith("Cannot set the log level of root to null as it is not a supported log level.")
    resources = [incremental(8, "1", ("root", 9, "INFO"))]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, CLUSTER_ACTION) == [
        (ErrorCode.UNKNOWN_SERVER_ERROR, SERVER_ERROR_MESSAGE)
    ]


def test_a_controller_takes_the_last_edit_of_a_key_and_null_for_a_deletion() -> None:
    """P-371."""
    edits = ("interval.ms", 0, "nonsense"), ("interval.ms", 0, "3600000"), ("match", 0, None)
    resources = [incremental(16, "m", *edits)]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, ALTER_CONFIGS) == [(0, None)]
    values = ("interval.ms", "nonsense"), ("interval.ms", "3600000"), ("match", None)
    assert altered(ApiKey.ALTER_CONFIGS, [replacement(16, "m", *values)], ALTER_CONFIGS) == [(0, None)]


def test_a_controller_does_not_check_the_settings_of_brokers() -> None:
    """P-371: only a broker has them, and checks them before it forwards the request."""
    read_only = ("num.partitions", 0, "7")
    resources = [incremental(4, "1", read_only), incremental(4, "", read_only)]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources, ALTER_CONFIGS) == [(0, None), (0, None)]
    resources = [replacement(4, "", ("num.partitions", "7"))]
    assert altered(ApiKey.ALTER_CONFIGS, resources, ALTER_CONFIGS) == [(0, None)]


NOT_ACTIVE = CommandRefused(ErrorCode.NOT_CONTROLLER, "The active controller appears to be node 2.")


def inactive_answer(key: int, *, is_forwarded: bool = False, **fields: object) -> Any:
    """Response of the port of a controller that is not active, with one topic "t", to a client with all rights."""
    api = CONTROLLER_APIS[key]
    _, handler = load_handler(api, ListenerKind.CONTROLLER)
    module = importlib.import_module(f"pykbroker.protocol.messages.{api.name}")
    context = context_of(key, ALTER_CONFIGS, CLUSTER_ACTION, DELETE)
    controller: Any = context.services.controller
    controller.submit_now(CreateTopics([NewTopic("t")]))
    controller.failure = NOT_ACTIVE
    context.api_version = api.highest
    context.connection.is_forwarded = is_forwarded
    return answer(handler, context, getattr(module, camel_case(api.name) + "Request")(**fields))


@pytest.mark.parametrize(
    ("topics", "errors"),
    [
        (
            ["no-1", "no-2"],
            {"no-1": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no-2": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        ),
        (["t", "t"], {"t": ErrorCode.INVALID_REQUEST}),
        (["no-1", "t"], {"no-1": ErrorCode.NOT_CONTROLLER, "t": ErrorCode.NOT_CONTROLLER}),
    ],
)
def test_a_controller_that_is_not_active_refuses_unknown_topics(topics: list[str], errors: dict[str, int]) -> None:
    """P-685: it needs the active one only if there is a topic to delete."""
    references = [delete_topics.DeleteTopicState(name=name) for name in topics]
    fields: dict[str, Any] = {"topics": references, "timeout_ms": 1000}
    results = inactive_answer(ApiKey.DELETE_TOPICS, **fields).responses
    assert {result.name: result.error_code for result in results} == errors
    forwarded = inactive_answer(ApiKey.DELETE_TOPICS, is_forwarded=True, **fields).responses
    assert {result.error_code for result in forwarded} == {ErrorCode.NOT_CONTROLLER}


def test_all_resources_get_the_error_of_a_controller_that_is_not_active() -> None:
    """P-685: also those that ControllerApis refuses, one by one, at the active one."""
    resources = [incremental(16, "m"), incremental(99, "x"), incremental(8, "x", ("root", 0, "INFO"))]
    responses = inactive_answer(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources).responses
    assert [(each.resource_type, each.error_code, each.error_message) for each in responses] == [
        (kind, ErrorCode.NOT_CONTROLLER, NOT_ACTIVE.error.message) for kind in (16, 99, 8)
    ]
    refused = inactive_answer(ApiKey.ALTER_CONFIGS, resources=[replacement(99, "x")]).responses
    assert [each.error_code for each in refused] == [ErrorCode.UNSUPPORTED_VERSION], "nothing for the active one to do"


def test_quotas_at_a_controller_that_is_not_active() -> None:
    """P-685: Kafka's response has the text of the error code."""
    fields: dict[str, Any] = ADMIN[ApiKey.ALTER_CLIENT_QUOTAS]
    (entry,) = inactive_answer(ApiKey.ALTER_CLIENT_QUOTAS, **fields).entries
    assert (entry.error_code, entry.error_message) == (
        ErrorCode.NOT_CONTROLLER,
        "This is not the correct controller for this cluster.",
    )


def test_a_controller_can_only_end_that_a_directory_is_cordoned() -> None:
    """P-370."""
    text = (
        "When updating cordoned.log.dirs via controllers,  the new value must be a subset of the current configuration "
        "value."
    )
    cordoned = [incremental(4, "1", ("cordoned.log.dirs", 0, "/data"))]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, cordoned, ALTER_CONFIGS) == [(ErrorCode.INVALID_CONFIG, text)]
    none = [incremental(4, "1", ("cordoned.log.dirs", 0, ""))]
    assert altered(ApiKey.INCREMENTAL_ALTER_CONFIGS, none, ALTER_CONFIGS) == [(0, None)]


def test_an_old_fetch_of_the_metadata_log() -> None:
    """Versions that cannot say who leads, or where logs diverge, are refused by their number."""
    context = context_of(ApiKey.FETCH, CLUSTER_ACTION)
    context.api_version = 11
    with pytest.raises(KafkaError, match="versions below 12 have no fields") as refused:
        call(handle_controller_fetch, context, FetchRequest())
    assert refused.value.error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("epoch", "is_leader", "code"),
    [
        (2, True, ErrorCode.FENCED_LEADER_EPOCH),
        (4, True, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (3, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (3, True, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_voter_that_is_updated_at_another_leader(epoch: int, is_leader: bool, code: ErrorCode) -> None:
    """The epoch is looked at before the leadership, and both before the voter itself, which has no id here."""
    context = context_of(ApiKey.UPDATE_RAFT_VOTER, CLUSTER_ACTION)
    controller: Any = context.services.controller
    controller.is_leader = is_leader
    controller.known_leader = lambda: (7, 3)
    peers = SimpleNamespace(address_of=lambda node_id: ("leader.example", 9093))
    context.services = context.services.replaced(peers=peers)
    request = UpdateRaftVoterRequest(cluster_id=None, current_leader_epoch=epoch, voter_id=-1)
    answer = call(handle_update_raft_voter, context, request)
    assert answer.error_code == code
    leader = answer.current_leader
    assert (leader.leader_id, leader.leader_epoch, leader.host, leader.port) == (7, 3, "leader.example", 9093)


def test_a_login_token_without_a_handshake() -> None:
    """P-16: as on a connection that is logged in."""
    answer = call(
        handle_sasl_authenticate, make_context(2, api_key=ApiKey.SASL_AUTHENTICATE), SaslAuthenticateRequest()
    )
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.ILLEGAL_SASL_STATE,
        "SaslAuthenticate request received after successful authentication",
    )
