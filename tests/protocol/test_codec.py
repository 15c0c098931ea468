"""Codecs against themselves, against kafka-python's, and against bytes that mean nothing."""

from __future__ import annotations

import random
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykbroker.protocol.codec import (
    decode,
    decode_from,
    decode_versioned,
    encode,
    encode_chunks,
    encode_versioned,
)
from pykbroker.protocol.codec_source import Malformed, read_uvarint, write_uvarint
from pykbroker.protocol.errors import DecodeError, EncodeError, UnsupportedVersion
from pykbroker.protocol.fields import Message
from pykbroker.protocol.headers import read_request_header
from pykbroker.protocol.log_messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from pykbroker.protocol.log_messages.consumer_protocol import ConsumerProtocolSubscription
from pykbroker.protocol.messages.api_versions import ApiVersionsResponse, SupportedFeatureKey
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from pykbroker.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.protocol.test_schema_parity import MESSAGES
from tests.support.message_strategies import random_message

VERSIONS = [(message_type, version) for message_type in MESSAGES for version in message_type.VERSIONS]
IDS = [f"{message_type.__name__}-v{version}" for message_type, version in VERSIONS]
KAFKA_PYTHON_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


def kafka_python_type(name: str) -> Any:
    for module in KAFKA_PYTHON_MODULES:
        if hasattr(module, name):
            return getattr(module, name)
    return None


def decode_error(message_type: type[Message], version: int, data: bytes) -> DecodeError | None:
    """The error of decoding these bytes; None if they are a message."""
    try:
        decode(message_type, version, data)
    except DecodeError as error:
        return error
    return None


@pytest.mark.parametrize(("message_type", "version"), VERSIONS, ids=IDS)
def test_what_is_encoded_is_decoded(message_type: type[Message], version: int) -> None:
    generator = random.Random(f"{message_type.__name__} {version}")
    for _ in range(8):
        message = random_message(message_type, version, generator)
        data = encode(message, version)
        assert decode_from(message_type, version, data, 0) == (message, len(data))
        assert decode_from(message_type, version, memoryview(b"xyz" + data), 3) == (message, len(data) + 3)


@pytest.mark.parametrize(("message_type", "version"), VERSIONS, ids=IDS)
def test_kafka_python_reads_and_writes_the_same_bytes(message_type: type[Message], version: int) -> None:
    """Encoded by us, decoded and encoded again by kafka-python, decoded by us."""
    theirs = kafka_python_type(message_type.__name__)
    if message_type.KEY < 0 or theirs is None or not theirs.min_version <= version <= theirs.max_version:
        pytest.skip("kafka-python has no such message or version")
    generator = random.Random(f"{message_type.__name__} {version}")
    for _ in range(4):
        message = random_message(message_type, version, generator)
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error kafka-python reads the body of version 0, whatever the version (P-2)
        data = encode(message, version)
        decoded = theirs.decode(data, version=version)
        decoded._header = None
        again = decoded.encode(version=version)
        assert bytes(again) == data
        assert decode(message_type, version, bytes(again)) == message


@pytest.mark.parametrize(("message_type", "version"), VERSIONS, ids=IDS)
def test_any_bytes_give_a_value_or_a_decode_error(message_type: type[Message], version: int) -> None:
    """Cut, changed and random bytes; an error names the message, the version and a position in the buffer."""
    generator = random.Random(f"{message_type.__name__} {version} mutated")
    data = bytearray(encode(random_message(message_type, version, generator), version))
    for _ in range(60):
        mutated = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            if mutated:
                mutated[generator.randrange(len(mutated))] = generator.choice(
                    (0, 1, 127, 128, 255, generator.randrange(256))
                )
        del mutated[generator.randint(0, len(mutated)) :]
        error = decode_error(message_type, version, bytes(mutated))
        if error is not None:
            assert error.message_name == message_type.__name__
            assert error.version == version
            assert 0 <= error.position <= len(mutated)
            assert error.field


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from([entry for entry in VERSIONS if entry[0].__name__.endswith("Request")]))
def test_random_bytes_are_survived(data: bytes, entry: tuple[type[Message], int]) -> None:
    message_type, version = entry
    error = decode_error(message_type, version, data)
    if error is not None:
        assert 0 <= error.position <= len(data)
    else:
        message, end = decode_from(message_type, version, memoryview(data), 0)
        assert end <= len(data)
        assert isinstance(message, message_type)


def test_a_decode_error_names_the_field_and_its_position() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="clicks", partitions=[FetchPartition(), FetchPartition()])])
    data = encode(request, 11)
    with pytest.raises(DecodeError) as caught:
        decode(FetchRequest, 11, data[:-13])
    error = caught.value
    assert (error.message_name, error.version) == ("FetchRequest", 11)
    assert error.field == "topics[0].partitions[1].log_start_offset"
    assert error.position == len(data) - 6 - 4 - 8
    assert "FetchRequest v11: field topics[0].partitions[1].log_start_offset at byte" in str(error)


def test_a_count_beyond_the_bytes_is_refused_before_it_costs_memory() -> None:
    with pytest.raises(DecodeError, match=r"an array of 2147483646 elements in 0 bytes"):
        decode(MetadataRequest, 1, b"\x7f\xff\xff\xfe")


def test_a_string_that_is_no_utf_8_reads_as_java_reads_it() -> None:
    (topic,) = decode(MetadataRequest, 1, b"\0\0\0\1\0\4caf\xe9").topics or []
    assert topic.name == "caf\ufffd"


def test_all_elements_of_a_message_together_have_a_limit() -> None:
    """Names, numbers, structs at any depth and tagged fields: each is an object once it is read."""
    names = encode(MetadataRequest(topics=[MetadataRequestTopic(name="") for _ in range(11)]), 1)
    numbers = encode(OffsetFetchRequest(topics=[OffsetFetchRequestTopic(name="", partition_indexes=[0] * 10)]), 1)
    tags = b"\x01\x00\x0b" + b"".join(bytes((number, 0)) for number in range(11))
    for message_type, version, data in (
        (MetadataRequest, 1, names),
        (OffsetFetchRequest, 1, numbers),
        (DescribeClusterRequest, 1, tags),
    ):
        decode_from(message_type, version, data, 0, 11)
        with pytest.raises(DecodeError, match="too many elements"):
            decode_from(message_type, version, data, 0, 10)
        assert decode_from(message_type, version, data, 0)[1] == len(data)


def test_a_null_for_a_field_that_is_not_nullable_is_refused() -> None:
    with pytest.raises(DecodeError, match="not nullable"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    with pytest.raises(EncodeError, match="topics"):
        encode(MetadataRequest(topics=None), 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    """P-6: a client of the future may send tags that we do not know."""
    response = ApiVersionsResponse(supported_features=[SupportedFeatureKey(name="a", max_version=1)])
    plain = encode(ApiVersionsResponse(), 3)
    data = encode(response, 3)
    tags = len(plain) - 1
    assert data[tags : tags + 2] == b"\x01\x00"  # one tag, number 0
    extended = data[:tags] + b"\x02" + data[tags + 1 :] + b"\x63\x02ab"
    assert decode(ApiVersionsResponse, 3, data) == decode(ApiVersionsResponse, 3, extended) == response


@pytest.mark.parametrize(
    ("tags", "cluster_id"),
    [
        (b"\1\0\2\2a", "a"),
        (b"\3\x63\0\0\2\2a\x62\1x", "a"),
        (b"\2\0\2\2a\0\2\2b", "b"),
        (b"\1\0\x63\2a", "a"),
        (b"\1\x80\x80\x80\x80\x10\2\2a", "a"),
        (b"\xff\xff\xff\xff\x0f", None),
    ],
    ids=["one", "not in order", "twice", "a wrong size", "a tag beyond 32 bits", "a negative count"],
)
def test_tagged_fields_are_read_as_kafka_reads_them(tags: bytes, cluster_id: str | None) -> None:
    """P-6: the readers of its messages look neither at the order of tags nor at the size of a field that they know."""
    plain = encode(FetchRequest(), 12)[:-1]
    read = decode(FetchRequest, 12, plain + tags)
    assert (read.cluster_id, read.max_bytes) == (cluster_id, FetchRequest().max_bytes)


def test_a_tag_of_another_version_is_refused() -> None:
    """Kafka's reader fails on a field that its struct has at other versions only; P-6 is about unknown fields."""
    plain = encode(FetchRequest(), 12)[:-1]
    with pytest.raises(DecodeError, match="tag 1 is not valid at version 12"):
        decode(FetchRequest, 12, plain + b"\1\1\0")
    with pytest.raises(DecodeError, match="too early"):
        decode(FetchRequest, 12, plain + b"\1\x63\x7f")


def test_tags_are_written_in_ascending_order_and_defaults_left_out() -> None:
    """P-6."""
    partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2), records=b"")
    with_tag = encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12)
    partition.diverging_epoch = EpochEndOffset()
    without = encode(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12)
    assert len(with_tag) - len(without) == 2 + 4 + 8 + 1


def test_a_value_that_the_version_cannot_carry_is_refused_unless_ignorable() -> None:
    assert encode(MetadataRequest(include_topic_authorized_operations=False), 0)
    with pytest.raises(EncodeError, match="allow_auto_topic_creation"):
        encode(MetadataRequest(allow_auto_topic_creation=False), 0)


def test_a_version_out_of_range_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="MetadataRequest has versions 0-13, not 14"):
        encode(MetadataRequest(), 14)
    with pytest.raises(UnsupportedVersion):
        decode(MetadataRequest, -1, b"")


def test_payloads_are_chunks_of_their_own() -> None:
    """Records leave the encoder as they came, so that a file range can go out by sendfile."""

    class Range:
        def __len__(self) -> int:
            return 7

    payload = Range()
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=payload)])])
    chunks = encode_chunks(response, 12)
    assert chunks[1] is payload
    inline = PartitionData(records=b"1234567")
    joined = encode(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[inline])]), 12)
    assert b"".join((chunks[0], b"1234567", chunks[2])) == joined


def test_versioned_blobs() -> None:
    subscription = ConsumerProtocolSubscription(topics=["a", "b"], generation_id=3)
    data = encode_versioned(subscription, 2)
    assert data[:2] == b"\x00\x02"
    assert decode_versioned(ConsumerProtocolSubscription, data) == subscription
    with pytest.raises(DecodeError, match="version"):
        decode_versioned(ConsumerProtocolSubscription, b"\x00")


def test_structs_that_are_not_given_are_shared_and_lists_are_fresh() -> None:
    first, second = FetchRequest(), FetchRequest()
    assert first.replica_state is second.replica_state
    assert first.topics is not second.topics
    assert first == second
    assert "session_epoch=-1" in repr(first)


def test_a_null_struct_in_a_tagged_field_is_the_varint_zero() -> None:
    """Outside of tagged fields it is the byte -1."""
    value = ConsumerGroupMemberMetadataValue(client_id="c", classic_member_metadata=None)
    data = encode(value, 0)
    assert data.endswith(b"\x01\x00\x01\x00")
    assert decode(ConsumerGroupMemberMetadataValue, 0, data) == value
    classic = ClassicMemberMetadata(session_timeout_ms=5)
    value = ConsumerGroupMemberMetadataValue(client_id="c", classic_member_metadata=classic)
    data = encode(value, 0)
    assert data.endswith(b"\x01\x00\x07\x01\x00\x00\x00\x05\x01\x00")
    assert decode(ConsumerGroupMemberMetadataValue, 0, data) == value


@pytest.mark.parametrize("value", [0x80, 0x3FFF, 0x4000, 0x1FFFFF, 0x200000, 0xFFFFFFF, 0x10000000, 0xFFFFFFFF])
def test_a_varint_of_any_length_is_read_back(value: int) -> None:
    written = bytearray(b"before")
    write_uvarint(written, value)
    data = bytes(written) + b"\xff"
    assert read_uvarint(data, 7, data[6]) == (value, len(written))
    for end in range(7, len(written)):
        with pytest.raises(IndexError):
            read_uvarint(data[:end], 7, data[6])


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (b"\xff\xfeab", "\ufffd\ufffdab"),
        (b"\xe2\x82ab", "\ufffdab"),
        (b"\xe0\x80\x80a", "\ufffd\ufffd\ufffda"),
        (b"\xed\xa0\x80\xed\xb0\x80a", "\ufffd\ufffda"),
        (b"\xed\xa0a", "\ufffda"),
        (b"a\xed\xbf", "a\ufffd"),
        (b"a\xed", "a\ufffd"),
        (b"\xed\x9f\xbfa", "\ud7ffa"),
    ],
)
def test_bytes_that_are_no_utf8_are_read_as_java_reads_them(sent: bytes, read: str) -> None:
    """P-670: one U+FFFD for an encoded surrogate, where Python has three."""
    name = bytes([len(sent) + 1]) + sent
    request = decode(DescribeGroupsRequest, 5, b"\2" + name + b"\0\0")
    assert request.groups == [read]
    header = read_request_header(b"\x00\x12\x00\x02\x00\x00\x00\x07\x00" + bytes([len(sent)]) + sent, {18: 3})
    assert header.client_id == read


def test_bits_of_a_varint_beyond_32_are_lost() -> None:
    """As in Java, where the fifth byte is shifted by 28 bits."""
    assert read_uvarint(b"\xff\xff\xff\xff\x10", 1, 0xFF) == (0x0FFFFFFF, 5)


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_of_six_bytes_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_uvarint(data, 1, data[0])
