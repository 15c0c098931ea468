"""Elements of arrays that were encoded before the message around them."""

from __future__ import annotations

import random

import pytest

from pykbroker.protocol.codec import decode, encode, encode_element
from pykbroker.protocol.errors import EncodeError, UnsupportedVersion
from pykbroker.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.support.message_strategies import random_message


@pytest.mark.parametrize("version", list(MetadataResponse.VERSIONS))
def test_encoded_elements_give_the_same_bytes(version: int) -> None:
    """Some or all of them, in an array inside another one as well."""
    generator = random.Random(version)
    for _ in range(20):
        response = random_message(MetadataResponse, version, generator)
        expected = encode(response, version)
        for topic in response.topics:
            topic.partitions = [
                encode_element(MetadataResponse, partition, version) if generator.random() < 0.5 else partition
                for partition in topic.partitions
            ]
        assert encode(response, version) == expected
        response.topics = [encode_element(MetadataResponse, topic, version) for topic in response.topics]
        assert encode(response, version) == expected
        assert encode(decode(MetadataResponse, version, expected), version) == expected


def test_errors_are_those_of_whole_messages() -> None:
    with pytest.raises(EncodeError, match="MetadataResponsePartition v12: field replica_nodes"):
        encode_element(MetadataResponse, MetadataResponsePartition(replica_nodes=[1 << 40]), 12)
    with pytest.raises(UnsupportedVersion):
        encode_element(MetadataResponse, MetadataResponseTopic(), 99)
