"""BrokerRegistration (key 62): a broker process joins the cluster, fenced at first (KIP-631).

Versions 0-4. v1 ZooKeeper migration, which is refused; v2 log directories (KIP-858), without which Kafka 4 refuses a
broker; v3 the epoch before a clean stop (KIP-966), without which the broker's replicas are no longer eligible leaders;
v4 features whose lowest level is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.brokers import RegisterBroker
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.endpoints_and_features import read_endpoints, read_features
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import CLUSTER_ACTION
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.broker_registration import BrokerRegistrationResponse
from pykbroker.requests.controller_calls import active_controller_of

if TYPE_CHECKING:
    from pykbroker.protocol.messages.broker_registration import BrokerRegistrationRequest
    from pykbroker.requests.context import ControllerContext


async def handle_broker_registration(
    context: ControllerContext, request: BrokerRegistrationRequest
) -> BrokerRegistrationResponse:
    """Registers the broker; the response has its broker epoch, which identifies this process in its later requests."""
    context.require_cluster(CLUSTER_ACTION)
    cluster_id = context.services.cluster_id
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    registration = RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=read_endpoints(request.listeners),
        features=read_features(request.features),
        log_dirs=request.log_dirs,
        rack=request.rack,
        previous_epoch=request.previous_broker_epoch,
    )
    try:
        epoch = await active_controller_of(context).register(registration)
    except CommandRefused as refused:
        return BrokerRegistrationResponse(error_code=refused.error.code)
    return BrokerRegistrationResponse(broker_epoch=epoch)
