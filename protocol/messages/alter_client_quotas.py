"""AlterClientQuotas (key 49): change client quotas."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, boolean, float64, int16, int32, string


class EntityData(Message):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class OpData(Message):
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class EntryData(Message):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Message, versions="0-1", flexible="1+", key=49):
    """AlterClientQuotas request (API key 49): change client quotas."""

    entries: list[EntryData] = array(EntryData, "0+")
    validate_only: bool = boolean("0+")


class EntityDataResponse(Message):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class EntryDataResponse(Message):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityDataResponse] = array(EntityDataResponse, "0+")


class AlterClientQuotasResponse(Message, versions="0-1", flexible="1+", key=49):
    """AlterClientQuotas response (API key 49)."""

    throttle_time_ms: int = int32("0+")
    entries: list[EntryDataResponse] = array(EntryDataResponse, "0+")
