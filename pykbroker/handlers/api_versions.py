"""ApiVersions (key 18): APIs and features of the broker or, on a controller's port, of the controller.

Versions 0-4. v3 client name and version (KIP-511), features (KIP-584), flexible body behind a response header v0
(P-1); v4 features whose lowest level is 0 are listed (KAFKA-17011). A version above 4 gets a version 0 response with
error 35 and this API's own range (P-2), from dispatch and before the body is read.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from pykbroker.controller.metadata.features import KRAFT_VERSION, supported_features
from pykbroker.protocol.api_keys import ApiKey
from pykbroker.protocol.codec import encode_element
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from pykbroker.requests.api_table import APIS, APIS_OF
from pykbroker.requests.context import BrokerServices
from pykbroker.security.connection_info import ListenerKind

if TYPE_CHECKING:
    from pykbroker.protocol.messages.api_versions import ApiVersionsRequest
    from pykbroker.requests.context import NodeContext

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FEATURES_VERSION = 3
ZERO_MINIMUM_VERSION = 4


async def handle_api_versions(context: NodeContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Lists the table of APIs and the features; a malformed client name is INVALID_REQUEST (P-3)."""
    if context.api_version >= 3 and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.api_version >= 3:
        context.connection.software_name = request.client_software_name
        context.connection.software_version = request.client_software_version
    if context.connection.sasl is not None:
        context.connection.sasl.versions_were_sent()
    broker = context.services.config.broker
    is_controller = context.connection.listener_kind is ListenerKind.CONTROLLER
    # A controller registers the features of the second key, and lists those of the first one here (P-450).
    unstable = broker.unstable_api_versions_enable if is_controller else broker.unstable_feature_versions_enable
    image = context.services.metadata.image
    finalized = {**image.features, KRAFT_VERSION: context.services.controller.kraft_version}
    return ApiVersionsResponse(
        api_keys=_api_keys(
            context.connection.listener_kind,
            context.api_version,
            broker.unstable_api_versions_enable,
            _has_telemetry(context),
        ),
        supported_features=_supported_features(context.api_version, unstable),
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
            if level > 0
        ],
    )


@cache
def _api_keys(kind: ListenerKind, version: int, unstable: bool, has_telemetry: bool) -> list[Any]:
    """The encoded APIs of a listener, the same for every client: each connection of a client begins with them."""
    return [
        encode_element(
            ApiVersionsResponse,
            ApiVersion(
                api_key=api.key, min_version=api.advertised_lowest, max_version=api.highest_with(unstable=unstable)
            ),
            version,
        )
        for api in APIS_OF[kind].values()
        if not api.needs_telemetry or has_telemetry
    ]


@cache
def _supported_features(version: int, unstable: bool) -> list[Any]:
    """The encoded features of this software."""
    if version < FEATURES_VERSION:
        return []
    return [
        encode_element(
            ApiVersionsResponse, SupportedFeatureKey(name=name, min_version=lowest, max_version=highest), version
        )
        for name, (lowest, highest) in supported_features(unstable=unstable).items()
        # Old Java clients refuse a supported feature whose lowest level is 0 (P-20).
        if lowest > 0 or version >= ZERO_MINIMUM_VERSION
    ]


def _has_telemetry(context: NodeContext) -> bool:
    """True if the broker has a receiver of clients' metrics (P-203)."""
    services = context.services
    return isinstance(services, BrokerServices) and services.telemetry.is_enabled


def unsupported_version_response() -> ApiVersionsResponse:
    """Version 0 response to a request above this API's highest version: the error and this API's own range (P-2)."""
    api = APIS[ApiKey.API_VERSIONS]
    own_range = ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own_range])
