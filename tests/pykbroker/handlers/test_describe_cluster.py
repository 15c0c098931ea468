"""DescribeCluster: P-31."""

from __future__ import annotations

import pytest

from pykbroker.handlers.describe_cluster import handle_describe_cluster
from pykbroker.protocol.acl_codes import CLUSTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.metadata_records import FenceBrokerRecord
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.security.authorization import EVERY_OPERATION
from tests.support.admin import CLUSTER_ID, apply_records, call, make_context


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [
        (1, ErrorCode.NONE),
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_endpoint_types(endpoint_type: int, code: ErrorCode) -> None:
    """P-31."""
    response = call(handle_describe_cluster, make_context(1), DescribeClusterRequest(endpoint_type=endpoint_type))
    assert response.error_code == code


def test_fenced_brokers_only_when_asked_for() -> None:
    """P-31."""
    context = make_context(2, broker_ids=(1, 2))
    cache = context.services.metadata
    cache.image = apply_records(cache.image, [FenceBrokerRecord(id=2, epoch=cache.image.brokers[2].epoch)])
    plain = call(handle_describe_cluster, context, DescribeClusterRequest())
    assert [(broker.broker_id, broker.is_fenced) for broker in plain.brokers] == [(1, False)]
    full = call(handle_describe_cluster, context, DescribeClusterRequest(include_fenced_brokers=True))
    assert [(broker.broker_id, broker.is_fenced) for broker in full.brokers] == [(1, False), (2, True)]
    assert (full.cluster_id, full.controller_id) == (CLUSTER_ID, 1)


def test_no_controller_that_the_client_cannot_reach() -> None:
    """P-31: the only live broker has no listener of the client's name."""
    context = make_context(2, listener_name="OTHER")
    response = call(handle_describe_cluster, context, DescribeClusterRequest())
    assert (response.brokers, response.controller_id) == ([], -1)


def test_authorized_operations() -> None:
    """P-30."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = call(handle_describe_cluster, make_context(0), request)
    assert response.cluster_authorized_operations == EVERY_OPERATION[CLUSTER]
