"""Every request to a transaction coordinator in every state of an id, with the right epoch and with wrong ones.

One script for both sides: `record` runs it on Apache Kafka and keeps the answers, the replay runs it on our handlers
and compares. Producer ids are the same on both, as both count from 0.

What is not asked: requests of new clients under transaction.version 0, which no client sends then. Kafka fails upon
them with UNKNOWN_SERVER_ERROR and leaves the id unusable, as its records of version 0 cannot hold what they say.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import product
from typing import Any, NamedTuple

from pykbroker.protocol.fields import Message
from pykbroker.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykbroker.protocol.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker.protocol.messages.end_txn import EndTxnRequest
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.list_transactions import ListTransactionsRequest

TOPIC = "t"
PARTITIONS = 3

STUCK_TOPIC = "stuck"
"""One partition, whose leader is not there: a transaction with it does not come to its end."""

KAFKA_PROPERTIES = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transactional.id.expiration.ms": "604800000",
}
"""The settings of the recorded broker beyond what any single node has; those of the replay are the same."""

SHORT_TIMEOUT_MS = 1_000

STUCK = "stuck-"
"""Ids of the stuck table begin with it."""

OLD_END, NEW_END = 4, 5
OLD_ADD, NEW_ADD = 3, 5


class Ask(NamedTuple):
    """A request; the answer is sent back into the script."""

    label: str
    version: int
    request: Message


class Settle(NamedTuple):
    """Until the markers of this id are written; nothing for ids of the stuck table."""

    transactional_id: str


class Wait(NamedTuple):
    """Lets time go by."""

    time_ms: int


class SetLevel(NamedTuple):
    """Finalizes a transaction.version."""

    level: int


class SpendEpochs(NamedTuple):
    """Begins until the epoch of this id is 32,766."""

    transactional_id: str


Step = Ask | Settle | Wait | SetLevel | SpendEpochs
Script = Generator[Step, Any, Any]
Known = tuple[int, int]


# Single requests


def init(name: str, label: str, expected: Known = (-1, -1), *, version: int = 5, timeout_ms: int = 60_000) -> Script:
    request = InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected[0],
        producer_epoch=expected[1],
    )
    answer = yield Ask(f"{label}: init v{version} with {expected}", version, request)
    return answer.producer_id, answer.producer_epoch


def add(
    name: str,
    label: str,
    known: Known,
    *partitions: int,
    version: int = OLD_ADD,
    verify: bool = False,
    topic: str = TOPIC,
) -> Script:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=known[0],
            v3_and_below_producer_epoch=known[1],
            v3_and_below_topics=topics,
        )
    else:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=known[0], producer_epoch=known[1], verify_only=verify, topics=topics
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
    kind = "verify" if verify else "add"
    return (yield Ask(f"{label}: {kind} v{version} {list(partitions)} as {known}", version, request))


def add_offsets(name: str, label: str, known: Known, *, version: int = 4) -> Script:
    request = AddOffsetsToTxnRequest(transactional_id=name, producer_id=known[0], producer_epoch=known[1], group_id="g")
    return (yield Ask(f"{label}: add offsets v{version} as {known}", version, request))


def end(name: str, label: str, known: Known, *, commit: bool, version: int) -> Script:
    request = EndTxnRequest(transactional_id=name, producer_id=known[0], producer_epoch=known[1], committed=commit)
    verb = "commit" if commit else "abort"
    answer = yield Ask(f"{label}: {verb} v{version} as {known}", version, request)
    yield Settle(name)
    return answer.producer_id, answer.producer_epoch


def describe(name: str, label: str) -> Script:
    return (yield Ask(f"{label}: describe", 0, DescribeTransactionsRequest(transactional_ids=[name])))


# States


def new(name: str) -> Script:
    """An id that the coordinator has never seen."""
    yield from ()
    return 0, 0


def empty(name: str) -> Script:
    return (yield from init(name, "Empty"))


def empty_again(name: str) -> Script:
    yield from init(name, "Empty again")
    return (yield from init(name, "Empty again"))


def empty_again_by_its_owner(name: str) -> Script:
    known = yield from init(name, "Empty by its owner")
    return (yield from init(name, "Empty by its owner", known))


def ongoing_old(name: str) -> Script:
    known = yield from init(name, "Ongoing, old client")
    yield from add(name, "Ongoing, old client", known, 0)
    return known


def ongoing_new(name: str) -> Script:
    known = yield from init(name, "Ongoing, new client")
    yield from add(name, "Ongoing, new client", known, 0, version=NEW_ADD)
    return known


def ended_old(name: str, *, commit: bool) -> Script:
    known = yield from ongoing_old(name)
    yield from end(name, "ended, old client", known, commit=commit, version=OLD_END)
    return known


def ended_new(name: str, *, commit: bool) -> Script:
    known = yield from ongoing_new(name)
    return (yield from end(name, "ended, new client", known, commit=commit, version=NEW_END))


def committed_old(name: str) -> Script:
    return (yield from ended_old(name, commit=True))


def aborted_old(name: str) -> Script:
    return (yield from ended_old(name, commit=False))


def committed_new(name: str) -> Script:
    return (yield from ended_new(name, commit=True))


def aborted_new(name: str) -> Script:
    return (yield from ended_new(name, commit=False))


def aborted_twice_new(name: str) -> Script:
    known = yield from aborted_new(name)
    return (yield from end(name, "aborted twice", known, commit=False, version=NEW_END))


OLD_STATES = (new, empty, empty_again, empty_again_by_its_owner, ongoing_old, committed_old, aborted_old)
NEW_STATES = (ongoing_new, committed_new, aborted_new, aborted_twice_new)


def relations(known: Known) -> Iterator[Known]:
    """Producer ids and epochs as a client may have them, the right ones first."""
    producer_id, epoch = known
    yield known
    yield producer_id, epoch + 1
    if epoch > 0:
        yield producer_id, epoch - 1
    yield producer_id + 7_000, epoch


def old_requests(name: str, label: str, known: Known) -> list[Script]:
    """All that an old client asks, and a broker for it."""
    return [
        end(name, label, known, commit=True, version=OLD_END),
        end(name, label, known, commit=False, version=OLD_END),
        add(name, label, known, 0, version=OLD_ADD),
        add(name, label, known, 0, 1, version=NEW_ADD, verify=True),
        add_offsets(name, label, known),
        init(name, label, known),
    ]


def new_requests(name: str, label: str, known: Known) -> list[Script]:
    """All that a new client asks, and a broker for it."""
    return [
        end(name, label, known, commit=True, version=NEW_END),
        end(name, label, known, commit=False, version=NEW_END),
        add(name, label, known, 1, 2, version=NEW_ADD),
    ]


OLD_COUNT, ALL_COUNT = 6, 9
RELATION_COUNT = 4


def every_request(name: str, label: str, known: Known) -> list[Script]:
    return old_requests(name, label, known) + new_requests(name, label, known)


def table(prefix: str, *, has_new_clients: bool) -> Script:
    """Each state, each request, each relation of the epoch: a new id for every combination."""
    for state in OLD_STATES + (NEW_STATES if has_new_clients else ()):
        for relation, number in product(range(RELATION_COUNT), range(ALL_COUNT if has_new_clients else OLD_COUNT)):
            name = f"{prefix}-{state.__name__}-{relation}-{number}"
            known = yield from state(name)
            choices = list(relations(known))
            if relation < len(choices):
                label = f"{prefix} {state.__name__}"
                yield from every_request(name, label, choices[relation])[number]
                yield Settle(name)
                yield from describe(name, label)
        name = f"{prefix}-{state.__name__}-init"
        yield from state(name)
        yield from init(name, f"{prefix} {state.__name__}")
        yield Settle(name)
        yield from describe(name, f"{prefix} {state.__name__}, after init")
        yield from init(name, f"{prefix} {state.__name__}, once more")


def stuck_table() -> Script:
    """P-128, P-132: what is told while a transaction ends, decided both ways by both kinds of clients."""
    for commit, kind, number, relation in product(
        (True, False), ("old", "new"), range(ALL_COUNT + 1), range(RELATION_COUNT)
    ):
        name = f"{STUCK}{kind}-{commit}-{number}-{relation}"
        known = yield from init(name, name)
        yield from add(name, name, known, 0, version=OLD_ADD if kind == "old" else NEW_ADD, topic=STUCK_TOPIC)
        yield from end(name, name, known, commit=commit, version=OLD_END if kind == "old" else NEW_END)
        found = (yield from describe(name, name)).transaction_states[0]
        choices = list(relations((found.producer_id, found.producer_epoch)))
        if relation < len(choices):
            if number < ALL_COUNT:
                yield from every_request(name, name, choices[relation])[number]
            else:
                yield from init(name, name)
            yield from describe(name, name)


def old_versions() -> Script:
    """Error codes of old versions for a fenced producer (P-130) and for bad partitions (P-131)."""
    for version in range(6):
        name = f"fenced-{version}"
        known = yield from empty_again(name)
        old = (known[0], known[1] - 1)
        if version < 5:
            yield from end(name, "fenced", old, commit=True, version=version)
            yield from add_offsets(name, "fenced", old, version=version)
        if version < 4:
            yield from add(name, "fenced", old, 0, version=version)
            yield from add(name, "bad partition", known, 0, 77, version=version)
            yield from add("", "no id", known, 0, version=version)
        if version >= 3:
            yield from init(name, "other owner", (known[0] + 7_000, 0), version=version)
    for timeout_ms in (0, -1, 900_000, 900_001):
        yield from init("timeout", f"timeout {timeout_ms}", timeout_ms=timeout_ms)
    yield from init("", "no id")
    yield from init("half", "half a producer", (5, -1))
    yield from end("", "no id", (0, 0), commit=True, version=NEW_END)
    yield from describe("", "no id")


def timeouts(prefix: str, *, has_new_clients: bool) -> Script:
    """P-140: who is late is fenced; what it may do then."""
    kinds = [("old", OLD_ADD)] + ([("new", NEW_ADD)] if has_new_clients else [])
    numbers = range(ALL_COUNT if has_new_clients else OLD_COUNT)
    for (kind, version), number in product(kinds, numbers):
        name = f"{prefix}-late-{kind}-{number}"
        known = yield from init(name, "late", timeout_ms=SHORT_TIMEOUT_MS)
        yield from add(name, "late", known, 0, version=version)
    yield Wait(SHORT_TIMEOUT_MS + 2_000)
    for (kind, _), number in product(kinds, numbers):
        name = f"{prefix}-late-{kind}-{number}"
        answer = yield from describe(name, f"{prefix} late")
        found = answer.transaction_states[0]
        yield from every_request(name, f"{prefix} late", (found.producer_id, 0))[number]
        yield Settle(name)
        yield from describe(name, f"{prefix} late, after that")


def overflows(prefix: str, *, has_new_clients: bool) -> Script:
    """P-129: the epochs of a producer id run out."""
    for number, version in enumerate((OLD_END, NEW_END) if has_new_clients else (OLD_END,)):
        name = f"{prefix}-spent-{version}"
        yield from init(name, "spent")
        yield SpendEpochs(name)
        answer = yield from describe(name, "spent")
        found = answer.transaction_states[0]
        last = (found.producer_id, found.producer_epoch)
        yield from add(name, "spent", last, number, version=OLD_ADD if version == OLD_END else NEW_ADD)
        yield from end(name, "spent", last, commit=True, version=version)
        yield from end(name, "spent, again", last, commit=True, version=version)
        yield from describe(name, "spent and committed")
        yield from init(name, "spent, other", (last[0], 5))
        yield from init(name, "spent", last)
        yield from init(name, "spent, again", last)
        yield from describe(name, "spent, after init")


def listing() -> Script:
    """ListTransactions with each of its filters. The states are made under ids that share a pattern, apart from other
    ids."""
    for state in (empty, ongoing_old, committed_old, aborted_new):
        yield from state(f"list-{state.__name__}")
    for label, version, filters in (
        ("pattern", 2, {"transactional_id_pattern": "list-.*"}),
        ("pattern, not of the whole id", 2, {"transactional_id_pattern": "list"}),
        ("malformed pattern", 2, {"transactional_id_pattern": "("}),
        ("states", 2, {"transactional_id_pattern": "list-[^x]+", "state_filters": ["Ongoing", "Empty"]}),
        ("unknown state", 2, {"transactional_id_pattern": "list-.*", "state_filters": ["ongoing", "Dead", "Empty"]}),
        ("producer ids", 2, {"transactional_id_pattern": "list-.*", "producer_id_filters": [123_456]}),
        ("duration", 2, {"transactional_id_pattern": "list-.*", "duration_filter": 3_600_000}),
        ("producer ids, v1", 1, {"producer_id_filters": [123_456]}),
        ("unknown state, v0", 0, {"state_filters": ["nonsense"]}),
    ):
        fields: dict[str, Any] = {"state_filters": [], "producer_id_filters": [], **filters}
        yield Ask(f"list by {label}", version, ListTransactionsRequest(**fields))


def script() -> Script:
    """Everything, under each transaction.version."""
    yield from table("tv2", has_new_clients=True)
    yield from old_versions()
    yield from listing()
    yield from timeouts("tv2", has_new_clients=True)
    yield from overflows("tv2", has_new_clients=True)
    yield from stuck_table()
    yield SetLevel(0)
    yield from table("tv0", has_new_clients=False)
    yield from timeouts("tv0", has_new_clients=False)
    yield from overflows("tv0", has_new_clients=False)
    yield SetLevel(1)
    yield from timeouts("tv1", has_new_clients=True)
