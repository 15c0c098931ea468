"""UpdateFeatures (key 57): finalized feature levels (KIP-584).

Versions 0-2. v0 has allow_downgrade where v1 has the upgrade type and validate_only; v2 leaves out the results per
feature. Either all features are changed or none; level 0 removes a feature (P-158).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykbroker.controller.metadata.features import (
    KRAFT_VERSION,
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
    UpdateFeatures,
)
from pykbroker.errors import KafkaError
from pykbroker.protocol.acl_codes import ALTER
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from pykbroker.requests.controller_calls import submit_command
from pykbroker.requests.voter_change_errors import text_of_upgrade

if TYPE_CHECKING:
    from pykbroker.protocol.messages.update_features import UpdateFeaturesRequest
    from pykbroker.requests.context import NodeContext

UPGRADE_TYPE_VERSION = 1
NO_RESULTS_VERSION = 2

_OF_ONE_FEATURE = "The update failed for all features since the following feature had an error: "


async def handle_update_features(context: NodeContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Changes the levels; if one is refused, the error message names its feature."""
    context.require_cluster(ALTER)
    updates = [
        FeatureUpdate(
            update.feature,
            update.max_version_level,
            update.upgrade_type
            if context.api_version >= UPGRADE_TYPE_VERSION
            else (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE),
        )
        for update in request.feature_updates
    ]
    command = UpdateFeatures(updates, request.validate_only, context.services.controller.kraft_version)
    result = await submit_command(context, command, request.timeout_ms)
    if result.is_failure:
        raise KafkaError(result.code, f"{_OF_ONE_FEATURE}{result.message}")
    await _raise_kraft_version(context, request, updates)
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version < NO_RESULTS_VERSION:
        response.results = [
            UpdatableFeatureResult(feature=update.name, error_code=ErrorCode.NONE, error_message="NONE")
            for update in updates
        ]
    return response


async def _raise_kraft_version(
    context: NodeContext, request: UpdateFeaturesRequest, updates: list[FeatureUpdate]
) -> None:
    """Raises kraft.version, a control record of the quorum and not of the metadata (KIP-853)."""
    controller = context.services.controller
    for update in {update.name: update for update in updates}.values():
        if update.name != KRAFT_VERSION or update.upgrade_type != UPGRADE:
            continue
        answer = await controller.voter_requests.upgrade(
            update.level, request.timeout_ms, validate_only=request.validate_only
        )
        if answer.failure is not None:
            raise KafkaError(answer.error, _OF_ONE_FEATURE + text_of_upgrade(answer.failure, update.level))
        if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if answer.error is not ErrorCode.NONE:
            raise KafkaError(answer.error)
        if not await controller.applied(answer.end_offset, request.timeout_ms):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
