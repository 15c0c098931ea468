"""Freed memory goes back to the system."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from pykbroker.controller.image_publisher import LARGE
from pykbroker.controller.metadata.image import PartitionImage, TopicImage
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.node.process_memory import anonymous_bytes, environment_for_brokers
from pykbroker.replication.leadership import Leadership
from pykbroker.replication.partition import Partition
from pykbroker.testing.local_broker import LocalBroker
from tests.support.data_path import batch
from tests.support.whole_broker import WholeBroker

PROGRAM = """
import gc
from pykbroker.node.process_memory import ATTEMPTS, WORK_S, FreedMemory, anonymous_bytes

collect = gc.collect

def collect_in_processor_time():
    global processor_s
    processor_s += return_s
    collect()

gc.collect = collect_in_processor_time
freed = FreedMemory(lambda: processor_s)
return_s = 0.0
now_s = processor_s = 0.0

def give_back(worked_s=WORK_S):
    global now_s, processor_s
    now_s += 3
    processor_s += worked_s
    return freed.give_back(now_s)

BUSY_S = 1.5
assert not give_back()
before = anonymous_bytes()
blocks = [bytearray(20_000_000) for _ in range(3)]
del blocks
blocks = [bytearray(1_000_000) for _ in range(40)]
last = blocks.pop()
assert give_back(), "grown by 40 MB in use"
del blocks
assert give_back(), "free by now"
blocks = [bytearray(1_000_000) for _ in range(60)]
del blocks[:-1]
assert sum(give_back(BUSY_S) for _ in range(10)) == ATTEMPTS
print(anonymous_bytes() - before)
blocks = [bytearray(20_000) for _ in range(2000)]
kept = blocks[-1]
assert sum(give_back(BUSY_S) for _ in range(10)) == ATTEMPTS, "all in use"
del blocks
assert not give_back(BUSY_S), "no growth"
assert give_back(0.0), "idle after work"
assert not give_back(0.0), "idle, no work"
return_s = 2 * WORK_S
assert give_back(WORK_S), "enough work, though idle all the time"
return_s = 0.0
assert not any(give_back(0.0) for _ in range(3)), "the return itself is no work"
print(anonymous_bytes() - before)
"""


@pytest.mark.skipif(anonymous_bytes() is None, reason="the system has no /proc/self/statm")
def test_freed_blocks_go_back() -> None:
    """In a process of its own: what the allocator holds depends on all that was before."""
    for environment in (dict(os.environ), environment_for_brokers(os.environ)):
        command = [sys.executable, "-c", PROGRAM]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        left, left_after_long_use = map(int, ran.stdout.split())
        assert left < 6_000_000
        assert left_after_long_use < 6_000_000


def has_glibc() -> bool:
    return "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {})


def test_what_somebody_chose_is_kept() -> None:
    for chosen in ("pymalloc", "malloc_debug", "default"):
        given = {"PYTHONMALLOC": chosen, "HOME": "/"}
        assert environment_for_brokers(given) == given


REQUESTS = """
import resource

def serve() -> None:
    frame = bytearray(2_000_000)
    room = bytearray(2_000_000)
    records = bytearray(1_000_000)

def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(5):
    serve()
before = faults()
for _ in range(50):
    serve()
print(faults() - before)
"""


@pytest.mark.skipif(not has_glibc(), reason="the C library is not glibc")
def test_large_blocks_are_made_of_pages_that_are_there() -> None:
    """By default glibc returns them after each request, and the system has to provide and to clear each page again."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONMALLOC", "MALLOC_"))}
    environment = environment_for_brokers(given)
    command = [sys.executable, "-c", REQUESTS]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) < 50 * 5_000_000 // 4096 // 10


@pytest.mark.skipif(not has_glibc() or not Path("/proc/self/environ").exists(), reason="not Linux with glibc")
def test_brokers_take_their_memory_from_where_it_goes_back_to(tmp_path: Path) -> None:
    """By LocalBroker and by the command line, which begins itself anew under the same process number."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    with LocalBroker() as broker:
        assert b"PYTHONMALLOC=malloc" in Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
    for chosen, expected in ((None, b"malloc"), ("pymalloc", b"pymalloc")):
        port_file = tmp_path / f"port-{chosen}"
        command = [sys.executable, "-m", "pykbroker", "start", "--port", "0", "--port-file", str(port_file)]
        environment = given if chosen is None else given | {"PYTHONMALLOC": chosen}
        process = subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / f"data-{chosen}")], env=environment, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 30
            while not port_file.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            assert port_file.exists()
            settings = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            assert b"PYTHONMALLOC=" + expected in settings
        finally:
            process.terminate()
            assert process.wait(30) == 0


OBJECTS = """
import gc, weakref
from pykbroker.node import process_memory as memory
from pykbroker.node.process_memory import SettledObjects

class Thing:
    def __init__(self, other=None):
        self.other = other

seen = []

def look(phase, info):
    if phase == "start" and info["generation"] == 2:
        seen.append(sum(len(gc.get_objects(generation=generation)) for generation in range(3)))

def used_by_a_closed_topic():
    thing = Thing()
    thing.other = Thing(thing)
    return thing

settled = SettledObjects()
settled.begin()
gc.callbacks.append(look)
"""

GROWTH = """
things = [Thing([]) for _ in range(200_000)]
print(len(seen), max(seen), gc.get_freeze_count())
"""

DELETION = """
frozen = gc.get_freeze_count()
things = [Thing([]) for _ in range(100_000)]
del things
gc.collect()
print(gc.get_freeze_count() - frozen)
"""

SHORT_LIVED = """
for _ in range(100_000):
    used_by_a_closed_topic()
print(len(gc.get_objects(generation=2)), gc.get_freeze_count())
"""

CYCLES = """
assert not settled.collect_if_due(0.0, 0.0), "nothing has settled"
things = [used_by_a_closed_topic() for _ in range(memory.THOROUGH_OBJECTS)]
ends = [weakref.ref(thing) for thing in things]
del things
assert sum(end() is not None for end in ends) > memory.THOROUGH_OBJECTS * 0.9, "settled"
assert not settled.collect_if_due(10.0, 8.0), "busy"
assert settled.collect_if_due(20.0, 8.1), "idle"
assert not any(end() for end in ends)
assert not settled.collect_if_due(30.0, 8.1)
del ends[:]
now_s = 100.0
things = []
looks = 0
for _ in range(40):
    things += [used_by_a_closed_topic() for _ in range(10_000)]
    now_s += 10
    looks += settled.collect_if_due(now_s, 0.0)
print(looks)
things += [used_by_a_closed_topic() for _ in range(400_000)]
now_s += 10
assert not settled.collect_if_due(now_s, now_s), "busy"
now_s += memory.THOROUGH_DELAY_S
assert settled.collect_if_due(now_s, now_s), "busy for too long"
settled.end()
print(gc.callbacks == [look])
"""

LIST_OF_SETTLED = """
gc.callbacks.remove(look)
import tracemalloc
things = [Thing([]) for _ in range(200_000)]
settled.collect_if_due(0.0, 0.0)
tracemalloc.start()
assert settled.collect_if_due(10.0, 0.0)
print(tracemalloc.get_traced_memory()[1], gc.get_freeze_count())
"""

collects_everything = pytest.mark.skipif(not gc.get_threshold()[2], reason="this Python makes no full collections")


def run_with_things(program: str) -> list[str]:
    """In a process of its own, as the garbage collector is of the whole process."""
    command = [sys.executable, "-c", OBJECTS + program]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.split()


@collects_everything
def test_a_full_collection_does_not_look_at_what_has_settled() -> None:
    count, largest, frozen = map(int, run_with_things(GROWTH))
    assert count > 10, "each a short one"
    # It would be a hundred thousand and more.
    assert largest < 25_000
    assert frozen > 350_000


@collects_everything
def test_settled_objects_that_nobody_refers_to_are_freed_at_once() -> None:
    assert int(run_with_things(DELETION)[0]) < 1000


@collects_everything
def test_short_lived_cycles_do_not_settle() -> None:
    remaining, frozen = map(int, run_with_things(SHORT_LIVED))
    assert remaining < 25_000
    assert frozen < 25_000


@collects_everything
def test_settled_cycles_are_found_when_the_process_is_idle_or_an_hour_later() -> None:
    """A growing process looks ever more rarely."""
    looks, is_at_end_alone = run_with_things(CYCLES)
    assert 3 <= int(looks) <= 8
    assert is_at_end_alone == "True"


@collects_everything
def test_a_thorough_collection_needs_no_memory_for_each_object() -> None:
    """A list of 400,000 objects has 3 MB, and what it leaves free in the heap is resident until it is returned."""
    peak_bytes, settled = map(int, run_with_things(LIST_OF_SETTLED))
    assert peak_bytes < 100_000
    assert settled > 350_000


def objects_of_topics(prefix: str) -> list[str]:
    """Objects in this process of topics whose name begins so."""
    kinds = (Partition, PartitionLog, Leadership, TopicImage, PartitionImage)
    names = [type(found).__name__ for found in gc.get_objects() if type(found) in kinds]
    topics = [found for found in gc.get_objects() if type(found) is TopicImage and found.name.startswith(prefix)]
    return [name for name in names if name != "TopicImage"] + [topic.name for topic in topics]


def test_deleted_topics_leave_no_cycles(tmp_path: Path) -> None:
    """Settled objects of deleted topics are freed without the garbage collector, with the image without them."""
    gc.collect()
    with WholeBroker(tmp_path, {"file.delete.delay.ms": "0"}) as broker:
        gc.disable()
        try:
            before = Counter(objects_of_topics("gone"))
            for number in range(3):
                assert broker.create_topic(f"gone-{number}", LARGE) == 0
                assert broker.produce(f"gone-{number}", batch(2)) == 0
                assert broker.fetch(f"gone-{number}", 0, 0).error_code == 0
            during = Counter(objects_of_topics("gone"))
            assert during["Partition"] == before["Partition"] + 3 * LARGE
            for number in range(3):
                assert broker.delete_topic(f"gone-{number}") == 0
            deadline = time.monotonic() + 20
            while (left := Counter(objects_of_topics("gone")) - before) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not left
        finally:
            gc.enable()
