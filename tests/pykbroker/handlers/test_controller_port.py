"""Requests on a controller's port that only nodes of the cluster may send."""

from __future__ import annotations

import importlib

import pytest

from pykbroker.controller.metadata.image import Acl
from pykbroker.errors import KafkaError
from pykbroker.handlers.alter_partition import handle_alter_partition
from pykbroker.handlers.broker_heartbeat import handle_broker_heartbeat
from pykbroker.protocol.acl_codes import ALLOW, ALTER, CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, LITERAL
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.error_codes import ErrorCode
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
from pykbroker.requests.api_table import CONTROLLER_APIS, camel_case, load_handler
from pykbroker.requests.context import RequestContext
from pykbroker.security.audit import AUTHORIZATION_FAILED, error_codes
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
    ApiKey.DELETE_TOPICS: {"topics": [delete_topics.DeleteTopicState(name="t")]},
    ApiKey.CREATE_PARTITIONS: {"topics": [create_partitions.CreatePartitionsTopic(name="t", count=5)]},
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
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {},
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
    # Decided by the token's owner and renewers alone; those that a client may not see are left out.
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
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
    try:
        codes = set(error_codes(answer(handler, context, request)))
    except KafkaError as refused:
        codes = {refused.error_code}
    assert codes & AUTHORIZATION_FAILED
    assert context.refusals
