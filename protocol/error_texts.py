"""Kafka's texts of error codes, for errors that come without a text of their own."""

from __future__ import annotations

from collections.abc import Mapping

from pykbroker.protocol.error_codes import ErrorCode

SERVER_ERROR_MESSAGE = "The server experienced an unexpected error when processing the request."
"""The text of UNKNOWN_SERVER_ERROR."""

TEXTS: Mapping[ErrorCode, str] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker.",
    ErrorCode.FENCED_STATE_EPOCH: (
        "The share coordinator rejected the request because the share-group state epoch did not match."
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "There is no leader for this topic-partition as we are in the middle of a leadership election."
    ),
    ErrorCode.NETWORK_EXCEPTION: "The server disconnected before a response was received.",
    ErrorCode.NOT_CONTROLLER: "This is not the correct controller for this cluster.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
}
"""Texts by code, of the codes for which some response needs one."""
