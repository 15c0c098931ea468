"""The error codes in a response."""

from __future__ import annotations

from typing import Any

from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_fields import _arrays_with_error_codes, error_codes
from pykbroker.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from pykbroker.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def test_error_codes_are_looked_for_only_where_there_are_some() -> None:
    """The configs of a thousand created topics are encoded, and have no error code."""
    failed = CreatableTopicResult(name="t", error_code=ErrorCode.INVALID_CONFIG)
    encoded_config: Any = b"encoded"
    created = CreatableTopicResult(name="u", configs=[encoded_config])
    assert list(error_codes(CreateTopicsResponse(topics=[failed, created]))) == [ErrorCode.INVALID_CONFIG]
    assert _arrays_with_error_codes(CreateTopicsResponse) == ("topics",)
    assert _arrays_with_error_codes(CreatableTopicResult) == ()
    assert _arrays_with_error_codes(MetadataResponse) == ("topics",)
    assert _arrays_with_error_codes(MetadataResponseTopic) == ("partitions",)


def test_at_any_depth_and_none_of_those_that_are_no_failure() -> None:
    partitions = [MetadataResponsePartition(), MetadataResponsePartition(error_code=ErrorCode.LEADER_NOT_AVAILABLE)]
    encoded_topic: Any = b"encoded"
    topic = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, partitions=partitions)
    response = MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED, topics=[encoded_topic, topic])
    assert list(error_codes(response)) == [
        ErrorCode.REBOOTSTRAP_REQUIRED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ]
