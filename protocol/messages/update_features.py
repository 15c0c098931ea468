"""UpdateFeatures (key 57): change finalized feature levels."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Message):
    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, versions="0-2", flexible="0+", key=57):
    """UpdateFeatures request (API key 57): change finalized feature levels."""

    timeout_ms: int = int32("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Message):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class UpdateFeaturesResponse(Message, versions="0-2", flexible="0+", key=57):
    """UpdateFeatures response (API key 57)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
