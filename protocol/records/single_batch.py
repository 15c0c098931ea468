"""Records of one partition of a Produce request: exactly one batch of format v2, whose header is parsed once, here.

The checks of Kafka's ProduceRequest.validateRecords and RequestUtils.hasTransactionalRecords, which come before those
of the log (P-35, P-38, P-49). `validation` checks the contents of the batch, with the header that is read here.
"""

from __future__ import annotations

from typing import Final

from pykbroker.protocol.records import compression
from pykbroker.protocol.records.compression import Buffer
from pykbroker.protocol.records.errors import (
    CorruptRecord,
    InvalidProduceRecords,
    UnknownCodec,
    UnsupportedCompressionType,
)
from pykbroker.protocol.records.layout import (
    CODEC_MASK,
    HEADER_SIZE,
    LEGACY_LENGTH_MIN,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    MAGIC_POSITION,
    TO_MAGIC_SIZE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)

MAGIC: Final = 2
"""The only format that Produce requests since version 3 may carry; 0 and 1 are those before it (KIP-724)."""
ZSTD_VERSION: Final = 7
"""First version of Produce in which a batch may be compressed with zstd (KIP-110)."""


class ProducedRecords:
    """Records of one partition as a client sent them.

    Attributes:
        data: empty when the request has none.
        header: of the first batch; None when there are fewer bytes than a header of format v2 has. Its fields are valid
            only after `check_head` and `check_single`.
        is_plain: True for one whole batch of format v2 that is neither transactional nor compressed with zstd. Nearly
            all are plain: `check_head` and `check_single` have nothing to refuse then.
    """

    __slots__ = ("data", "header", "is_plain")

    def __init__(self, data: Buffer | None) -> None:
        self.data: Buffer = b"" if data is None else data
        size = len(self.data)
        if size < HEADER_SIZE:
            self.header: BatchHeader | None = None
            self.is_plain = False
            return
        self.header = header = read_header(self.data)
        self.is_plain = (
            header.magic == MAGIC
            and header.length + LENGTH_OVERHEAD == size
            # The transactional flag is larger than the codecs below zstd.
            and header.attributes & (CODEC_MASK | TRANSACTIONAL_FLAG) < compression.ZSTD
        )

    @property
    def is_transactional(self) -> bool:
        """True if the batch is part of a transaction."""
        return self.header is not None and self.header.is_transactional

    @property
    def is_whole(self) -> bool:
        """True if the first batch ends within the data."""
        return self.header is not None and self.header.size_bytes <= len(self.data)

    def is_zstd_before(self, api_version: int) -> bool:
        """True if the batch is compressed with zstd, which this version of Produce does not allow."""
        return api_version < ZSTD_VERSION and self._codec == compression.ZSTD

    @property
    def _codec(self) -> int:
        return compression.NONE if self.header is None else self.header.attributes & CODEC_MASK

    def check_head(self) -> None:
        """Raises CorruptRecord if length and format of the first batch cannot be those of a batch.

        Kafka looks for transactional batches in the whole request first: one such batch refuses all partitions.
        """
        header, data = self.header, self.data
        if header is not None:
            length, magic = header.length, header.magic
        elif len(data) < LENGTH_OVERHEAD:
            return
        else:
            length = int.from_bytes(data[LENGTH_POSITION:LENGTH_OVERHEAD], "big", signed=True)
            magic = data[MAGIC_POSITION] if len(data) >= TO_MAGIC_SIZE else 0
        if length < LEGACY_LENGTH_MIN or not 0 <= magic <= MAGIC:
            raise CorruptRecord(f"a batch of length {length} and format {magic}")

    def check_single(self, api_version: int) -> None:
        """Raises unless these are one whole batch of format v2, in a codec that this version of Produce allows.

        A partial batch behind it is dropped without an error, as in Kafka.

        Raises:
            InvalidProduceRecords: no batch, two batches, or another format.
            UnsupportedCompressionType: zstd below Produce v7.
            UnknownCodec: an unknown codec below Produce v7.
            CorruptRecord: length or format cannot be those of a batch.
        """
        header, data = self.header, self.data
        if header is None or header.magic != MAGIC or header.size_bytes != len(data):
            size_bytes = size_of_first(data)
        else:
            size_bytes = len(data)
        if self.is_zstd_before(api_version):
            raise UnsupportedCompressionType(
                f"Produce requests with version {api_version} are not allowed to use ZStandard compression"
            )
        if api_version < ZSTD_VERSION and self._codec > compression.ZSTD:
            raise UnknownCodec(f"unknown codec {self._codec}")
        if size_bytes != len(data) and batch_size(data, size_bytes) is not None:
            raise InvalidProduceRecords(
                "Produce requests are only allowed to contain exactly one record batch per partition"
            )


def header_of_single(data: Buffer) -> BatchHeader:
    """Header of the one batch that `data` is, after the checks of `ProducedRecords.check_single`.

    Raises:
        InvalidProduceRecords, CorruptRecord: as there, and for a batch that is shorter than its header.
    """
    records = ProducedRecords(data)
    records.check_single(ZSTD_VERSION)
    header = records.header
    size_bytes = size_of_first(data) if header is None else header.size_bytes
    if header is None or size_bytes < HEADER_SIZE:
        raise CorruptRecord(
            f"Record batch is corrupt (the size {size_bytes} is smaller than the minimum allowed overhead "
            f"{HEADER_SIZE})"
        )
    return header


def size_of_first(data: Buffer) -> int:
    """Size in bytes of the first batch, which must be whole and of format v2.

    Raises:
        InvalidProduceRecords, CorruptRecord: it is not.
    """
    size_bytes = batch_size(data, 0)
    if size_bytes is None:
        raise InvalidProduceRecords("Produce requests must have at least one record batch per partition")
    if data[MAGIC_POSITION] != MAGIC:
        raise InvalidProduceRecords(
            "Produce requests are only allowed to contain record batches with magic version 2: this one has message "
            f"format {data[MAGIC_POSITION]}, upgrade the producer to one that speaks Kafka 0.11 or later"
        )
    return size_bytes


def batch_size(data: Buffer, position: int) -> int | None:
    """Size in bytes of the batch at `position`, of any format; None when there is no whole one.

    Raises:
        CorruptRecord: length or format cannot be those of a batch.
    """
    remaining = len(data) - position
    if remaining < LENGTH_OVERHEAD:
        return None
    length = int.from_bytes(data[position + LENGTH_POSITION : position + LENGTH_OVERHEAD], "big", signed=True)
    if length < LEGACY_LENGTH_MIN:
        raise CorruptRecord(f"Record size {length} is less than the minimum record overhead ({LEGACY_LENGTH_MIN})")
    if remaining < TO_MAGIC_SIZE:
        return None
    if data[position + MAGIC_POSITION] > MAGIC:
        raise CorruptRecord(f"Invalid magic found in record: {data[position + MAGIC_POSITION]}")
    return None if remaining < length + LENGTH_OVERHEAD else length + LENGTH_OVERHEAD
