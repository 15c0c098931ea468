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
from pykbroker.protocol.messages.alter_partition import AlterPartitionRequest
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker.requests.api_table import CONTROLLER_APIS, camel_case, load_handler
from pykbroker.requests.context import RequestContext
from pykbroker.security.connection_info import ListenerKind
from pykbroker.security.standard_authorizer import StandardAuthorizer
from tests.support.admin import call, make_context, make_services
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
