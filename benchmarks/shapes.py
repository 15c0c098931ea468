"""The shapes of load that `make bench` measures: what the Go load is told, on which topic, and in which sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MANY_PARTITIONS = 1000
# A rate that Apache Kafka reaches over a thousand partitions.
MANY_PARTITIONS_PER_S = 10_000
MEMBERS = 100
# A rate that Apache Kafka reaches with 16 clients on two cores.
TRANSACTIONS_PER_S = 500
# The smallest segment that Kafka 4 allows: only segments that are closed get compacted.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of load.

    Attributes:
        name: in the table.
        kind: the shapes that `--only KIND` measures together.
        load: arguments of benchmarks/load.
        size: bytes of a record's value.
        records: so many in a full round; 0 for a shape that lasts a number of seconds.
        quick_records: so many in a quick one.
        partitions: of its topic.
        configs: of its topic.
        reads: the shape whose topic it reads; it must stand before this one in the table.
        unit: one of what is counted.
        is_compacted: the measurement lasts until the broker has compacted what was written.
    """

    name: str
    kind: str
    load: tuple[str, ...]
    size: int = 100
    records: int = 0
    quick_records: int = 0
    partitions: int = 4
    configs: dict[str, str] = field(default_factory=dict)
    reads: str = ""
    unit: str = "record"
    is_compacted: bool = False

    def count(self, *, quick: bool) -> int:
        """Records of one run; 0 for a shape that lasts a number of seconds."""
        return self.quick_records if quick else self.records


def small() -> list[Shape]:
    """One record a request, except at the fixed rates: there the client puts together what has come together."""
    loads = {
        "16 clients": ("produce", "-clients", "16"),
        "100 clients": ("produce", "-clients", "100"),
        "one client": ("produce", "-clients", "1"),
        "end to end": ("endtoend",),
        "1,000 a second": ("rate", "-per-second", "1000"),
        "20,000 a second": ("rate", "-per-second", "20000"),
    }
    return [Shape(name, "small", load) for name, load in loads.items()]


def written_and_read(
    name: str,
    kind: str,
    size: int,
    counts: tuple[int, int],
    partitions: int = 4,
    options: tuple[str, ...] = (),
) -> list[Shape]:
    """Two shapes: produce in batches, and consume what was produced."""
    produce = f"{name}, produce"
    return [
        Shape(produce, kind, ("bulk", *options), size, *counts, partitions),
        Shape(f"{name}, consume", kind, ("consume",), size, *counts, partitions, reads=produce),
    ]


def transactions(clients: int, per_s: int = 0) -> Shape:
    """Ten records and a commit, again and again; with `per_s`, so many of all clients in a second.

    Clients that do not pause commit more often on a faster broker, and so wait for one another there.
    """
    name = f"transactions, {clients} clients" if clients > 1 else "transactions, one client"
    load: tuple[str, ...] = ("transact", "-clients", str(clients))
    if per_s:
        name = f"{name}, {per_s:,} a second"
        load = (*load, "-transactions-per-second", str(per_s))
    return Shape(name, "transactions", load, unit="transaction")


def compacted(name: str, configs: dict[str, str], *, is_compacted: bool) -> Shape:
    """Records of 1,000 keys. Without compaction it says what the same records cost in a plain topic."""
    load = ("bulk", "-keys", "1000")
    return Shape(name, "compacted", load, 100, 2_000_000, 400_000, configs=configs, is_compacted=is_compacted)


SHAPES: tuple[Shape, ...] = (
    *small(),
    *written_and_read("1,000 partitions", "partitions", 100, (1_000_000, 200_000), MANY_PARTITIONS),
    Shape(
        f"1,000 partitions, {MANY_PARTITIONS_PER_S:,} a second",
        "partitions",
        ("rate", "-per-second", str(MANY_PARTITIONS_PER_S), "-in-turn"),
        partitions=MANY_PARTITIONS,
    ),
    *written_and_read("100 kB records", "large", 100_000, (3_000, 1_000), options=("-buffered", "100")),
    *(
        shape
        for codec in CODECS
        for shape in written_and_read(f"codec {codec}", "codecs", 1000, (300_000, 60_000), options=("-codec", codec))
    ),
    transactions(1),
    transactions(16),
    transactions(16, TRANSACTIONS_PER_S),
    compacted("repeating keys, plain", {}, is_compacted=False),
    compacted("repeating keys, compacted", COMPACTED, is_compacted=True),
)
GROUP = "group"
KINDS_OF_LOAD = (*dict.fromkeys(shape.kind for shape in SHAPES), GROUP)


def topic_of(shape: Shape) -> str:
    """The topic that a shape writes, or reads."""
    name = shape.reads or shape.name
    return name.replace(" ", "-").replace(",", "")


def chosen(kinds: list[str]) -> list[Shape]:
    """The shapes of these kinds, in the order of the table."""
    return [shape for shape in SHAPES if shape.kind in kinds]
