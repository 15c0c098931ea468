"""Verdicts of the suite's checkers on a topic that has everything once, and of one that has not."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable

import pytest

from tests.interop_tests.fake_clients import MARKER, Topic, use_aiokafka, use_confluent, use_kafka_python

pytest.importorskip("confluent_kafka")
pytest.importorskip("aiokafka")

from interop_tests.aiokafka_client import aiokafka_consume
from interop_tests.clients import Message, confluent_consume, confluent_group_consume, kafka_python_consume
from interop_tests.cluster_load import check_places
from interop_tests.disk_writers import PROBE, check_load
from interop_tests.kill_load import BEHIND_S, RETRY_S, Administering, Consuming, Producing
from interop_tests.reading import read_to_ends
from interop_tests.transaction_clients import read_to_end

SENT = 60
LIBRARIES: dict[str, tuple[Callable[..., None], Callable[[str], list[Message]]]] = {
    "kafka-python": (use_kafka_python, lambda isolation: kafka_python_consume("", ["t"], isolation=isolation)),
    "confluent-kafka": (use_confluent, lambda isolation: confluent_consume("", ["t"], isolation=isolation)),
    "aiokafka": (use_aiokafka, lambda isolation: aiokafka_consume("", "t", isolation=isolation)),
}


def value(number: int) -> bytes:
    return b"%010d.." % number


def all_sent() -> Producing:
    """A producer of two partitions by turns, to whom everything was acknowledged."""
    producing = Producing("", "t", 2)
    producing.sent = SENT
    for partition in range(2):
        producing.acknowledged[partition] = producing.expected(partition)
    return producing


def stored(*, probes: int = 0, lost: Iterable[int] = (), again: Iterable[int] = ()) -> tuple[list[bytes], list[bytes]]:
    """Contents of the two partitions: probes amid the first, without what is lost, with `again` at the end."""
    gone = set(lost)
    first, second = ([value(n) for n in range(p, SENT, 2) if n not in gone] for p in range(2))
    first[5:5] = [PROBE] * probes
    for number in again:
        (first, second)[number % 2].append(value(number))
    return first, second


@pytest.mark.parametrize("probes", [0, 1, 9])
def test_probes_between_the_records_are_no_loss(monkeypatch: pytest.MonkeyPatch, probes: int) -> None:
    """A reader that counted them among those that were sent would stop before the end."""
    use_kafka_python(monkeypatch, Topic(*stored(probes=probes)))
    check_load("", all_sent())


@pytest.mark.parametrize("number", [0, SENT - 2, SENT - 1])
def test_a_loss_between_probes_is_found(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """As many probes as lost records, or more: the count alone would be right."""
    use_kafka_python(monkeypatch, Topic(*stored(probes=3, lost=[number])))
    with pytest.raises(AssertionError, match=rf"1 missing \[{number}\], 0 more than once"):
        check_load("", all_sent())


def test_a_record_too_many_behind_the_last_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies behind as many records as were sent."""
    use_kafka_python(monkeypatch, Topic(*stored(again=[SENT - 1])))
    with pytest.raises(AssertionError, match=rf"0 missing \[\], 1 more than once \[{SENT - 1}\]"):
        check_load("", all_sent())


def test_a_duplicate_does_not_stand_for_a_lost_record(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kafka_python(monkeypatch, Topic(*stored(lost=[SENT - 2], again=[4])))
    with pytest.raises(AssertionError, match=rf"1 missing \[{SENT - 2}\], 1 more than once \[4\]"):
        check_load("", all_sent())


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_library_reads_to_the_end(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Over markers, also the last ones of a partition; an empty partition has nothing to wait for."""
    use, read = LIBRARIES[library]
    values = [b"%d" % number for number in range(20)]
    use(monkeypatch, Topic([*values, MARKER], [], [MARKER, *values, MARKER, MARKER, b"last"], [MARKER]))
    found = read("read_uncommitted")
    assert [m.value for m in found if m.partition == 0] == values
    assert [(m.value, m.offset) for m in found if m.partition == 2][-1] == (b"last", 23)
    assert len(found) == 41


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_end_for_committed_readers_is_the_last_stable_offset(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    use, read = LIBRARIES[library]
    topic = Topic([b"a", MARKER, b"open", b"behind"], [b"b"])
    topic.stable[0] = 2
    use(monkeypatch, topic)
    assert sorted(m.value or b"" for m in read("read_committed")) == [b"a", b"b"]
    assert sorted(m.value or b"" for m in read("read_uncommitted")) == [b"a", b"b", b"behind", b"open"]


def test_committed_readers_of_the_copy_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic([b"a", MARKER, b"open"], [b"b", MARKER])
    topic.stable[0] = 2
    use_confluent(monkeypatch, topic)
    assert read_to_end("", "t", "read_committed", 2) == {0: [b"a"], 1: [b"b"]}


def test_a_group_is_given_all_that_is_behind_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that comes again behind the one that is expected is seen."""
    use_confluent(monkeypatch, Topic([b"old", b"new", b"new"], [b"old"]), {0: 1, 1: 1})
    assert [message.value for message in confluent_group_consume("", "t", "g")] == [b"new", b"new"]


class Growing:
    """A reader of one partition; `script` says for each poll which end there is then and how many records come."""

    def __init__(self, script: Iterable[tuple[int, int]]) -> None:
        self._script = iter(script)
        self._end, self._position = 0, 0
        self.asked = 0
        self.poll()

    def ends(self) -> dict[tuple[str, int], int]:
        self.asked += 1
        return {("t", 0): self._end}

    def position(self, _place: tuple[str, int]) -> int:
        return self._position

    def poll(self) -> list[Message]:
        self._end, count = next(self._script)
        first, self._position = self._position, self._position + count
        return [Message(None, b"%d" % offset, 0, offset) for offset in range(first, self._position)]


def test_the_end_is_asked_for_again_while_records_are_awaited() -> None:
    reader = Growing([(2, 0), (2, 2), (5, 0), (5, 3)])
    assert [message.offset for message in read_to_ends(reader, 4)] == [0, 1, 2, 3, 4]


def test_what_is_written_behind_the_end_is_not_waited_for() -> None:
    reader = Growing([(2, 0), (9, 2)])
    assert len(read_to_ends(reader)) == 2
    assert reader.asked == 1


def test_a_reader_that_stands_still_says_where() -> None:
    """The time runs from the last record on, however long reading takes as a whole."""
    steps = [(40, 0), *[(40, 1)] * 30, *[(40, 0)] * 100]
    clock = itertools.count()
    with pytest.raises(AssertionError, match=r"waited 20 s for t-0 at 30 of 40, 30 so far"):
        read_to_ends(Growing(steps), timeout_s=20, now=lambda: float(next(clock)))
    clock = itertools.count()
    with pytest.raises(AssertionError, match=r"waited 20 s for 41 records, 40 so far"):
        read_to_ends(Growing([(40, 0), (40, 40), *[(40, 0)] * 100]), 41, timeout_s=20, now=lambda: float(next(clock)))


def as_messages(values: Iterable[str], partition: int = 0) -> list[Message]:
    return [Message(None, text.encode(), partition, offset) for offset, text in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (["1", "2", "3"], None),
        (["1", "2", "3", "4"], None),
        (["1", "3"], r"1 acknowledged records are lost: \[\(\(0, 2\), '3'\)"),
        (["1", "2", "3", "2"], r"1 records are stored more than once: \['2'\]"),
        (["1", "2", "3", "0"], "t-0 is out of order"),
    ],
)
def test_acknowledged_places(values: list[str], complaint: str | None) -> None:
    """Records not acknowledged may be there as well; one that was is at its place, once, in order."""
    acknowledged = {(0, 0): "1", (0, 2): "3"}
    if complaint is None:
        check_places("t", acknowledged, as_messages(values))
    else:
        with pytest.raises(AssertionError, match=complaint):
            check_places("t", acknowledged, as_messages(values))


@pytest.fixture
def group_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Consuming]:
    """Makes a member whose group begins at an offset of a partition of ten records, 4 of which it has committed."""

    def make(offset: int) -> Consuming:
        use_confluent(monkeypatch, Topic([b"%d" % number for number in range(10)]), {0: offset})
        member = Consuming("", "t", 1, "g")
        monkeypatch.setattr(member, "_commit", lambda _: None)
        member.committed[0] = member.tried[0] = 4
        return member

    return make


def test_a_group_that_goes_on_where_it_was(group_at: Callable[[int], Consuming]) -> None:
    group_at(4).work()


@pytest.mark.parametrize(("offset", "complaint"), [(3, "went back"), (5, "begins at 5, at most 4 was committed")])
def test_a_group_that_reads_again_or_passes_over(
    group_at: Callable[[int], Consuming], offset: int, complaint: str
) -> None:
    """A gap between what was committed and where the next owner begins is a loss for the group."""
    with pytest.raises(AssertionError, match=complaint):
        group_at(offset).work()


@pytest.mark.parametrize(("behind_s", "is_lost"), [(0.0, False), (BEHIND_S - 1, False), (BEHIND_S + 1, True)])
@pytest.mark.parametrize("replicas", [1, 2])
def test_changes_of_metadata_that_show_late(
    monkeypatch: pytest.MonkeyPatch, behind_s: float, is_lost: bool, replicas: int
) -> None:
    """A broker may apply what its controller acknowledged a moment later; what never shows is lost."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    administering = Administering("127.0.0.1:1", "t", replicas)

    def compare() -> None:
        assert now[0] >= 100 + behind_s, "t-9: retention.ms"

    monkeypatch.setattr(administering, "_compare", compare)
    if is_lost:
        with pytest.raises(AssertionError, match=r"retention\.ms"):
            administering.check()
        assert now[0] <= 100 + BEHIND_S + 2 * RETRY_S
    else:
        administering.check()
