"""AllocateProducerIds (key 67): take a block of producer ids."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, int16, int32, int64


class AllocateProducerIdsRequest(Message, versions="0", flexible="0+", key=67):
    """AllocateProducerIds request (API key 67): take a block of producer ids."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)


class AllocateProducerIdsResponse(Message, versions="0", flexible="0+", key=67):
    """AllocateProducerIds response (API key 67)."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id_start: int = int64("0+")
    producer_id_len: int = int32("0+")
