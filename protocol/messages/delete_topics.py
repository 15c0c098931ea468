"""DeleteTopics (key 20): delete topics."""

from __future__ import annotations

from pykbroker.protocol.fields import Message, array, int16, int32, string, uuid


class DeleteTopicState(Message):
    name: str | None = string("6+", default=None, nullable="6+")
    topic_id: bytes = uuid("6+")


class DeleteTopicsRequest(Message, versions="1-6", flexible="4+", key=20):
    """DeleteTopics request (API key 20): delete topics."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


class DeletableTopicResult(Message):
    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", default=None, nullable="5+", ignorable=True)


class DeleteTopicsResponse(Message, versions="1-6", flexible="4+", key=20):
    """DeleteTopics response (API key 20)."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
