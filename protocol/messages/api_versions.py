"""ApiVersions (key 18): which APIs and features the broker has."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Message, versions="0-4", flexible="3+", key=18):
    """ApiVersions request (API key 18): which APIs and features the broker has."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersion(Message):
    api_key: int = int16("0+")
    min_version: int = int16("0+")
    max_version: int = int16("0+")


class SupportedFeatureKey(Message):
    name: str = string("3+")
    min_version: int = int16("3+")
    max_version: int = int16("3+")


class FinalizedFeatureKey(Message):
    name: str = string("3+")
    max_version_level: int = int16("3+")
    min_version_level: int = int16("3+")


class ApiVersionsResponse(Message, versions="0-4", flexible="3+", key=18):
    """ApiVersions response (API key 18)."""

    error_code: int = int16("0+")
    api_keys: list[ApiVersion] = array(ApiVersion, "0+", takes_encoded=True)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, tagged="3+", ignorable=True, takes_encoded=True
    )
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, tagged="3+", ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2, tagged="3+", ignorable=True)
    zk_migration_ready: bool = boolean("3+", tag=3, tagged="3+", ignorable=True)
