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

from pykbroker.controller.metadata.image import PartitionImage, TopicImage
from pykbroker.logstore.partition_log import PartitionLog
from pykbroker.node.process_memory import anonymous_bytes
from pykbroker.replication.leadership import Leadership
from pykbroker.replication.partition import Partition
from tests.support.data_path import batch
from tests.support.whole_broker import WholeBroker

PROGRAM = """
from pykbroker.node.process_memory import ATTEMPTS, FreedMemory, anonymous_bytes
freed = FreedMemory()
assert not freed.give_back()
before = anonymous_bytes()
blocks = [bytearray(20_000_000) for _ in range(3)]
del blocks
blocks = [bytearray(1_000_000) for _ in range(40)]
last = blocks.pop()
assert freed.give_back(), "grown by 40 MB in use"
del blocks
assert freed.give_back(), "free by now"
blocks = [bytearray(1_000_000) for _ in range(60)]
del blocks[:-1]
assert sum(freed.give_back() for _ in range(10)) == ATTEMPTS
print(anonymous_bytes() - before)
"""


@pytest.mark.skipif(anonymous_bytes() is None, reason="the system has no /proc/self/statm")
def test_freed_blocks_go_back() -> None:
    """In a process of its own: what the allocator holds depends on all that was before."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) < 6_000_000


def has_glibc() -> bool:
    return "CS_GNU_LIBC_VERSION" in getattr(os, "confstr_names", {})


ALLOCATOR = """
import ast, ctypes, sys
from pykbroker.node.process_memory import use_malloc

class Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]

def malloc_of(domain):
    found = Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(found))
    return found.malloc

older = [[number, str(number)] for number in range(10_000)]
first = use_malloc()
print(first, malloc_of(1) == malloc_of(2) == malloc_of(0), use_malloc())
# Memory of the old allocator is resized and freed, and lists grow from nothing.
for pair in older:
    pair.extend(range(100))
newer = [[] for _ in range(50_000)]
for number, new in enumerate(newer):
    new.append({number: str(number)})
assert all(pair[0] == number and len(pair) == 102 for number, pair in enumerate(older))
del older
assert sum(int(new[0][number]) for number, new in enumerate(newer)) == sum(range(50_000))

def depth(left):
    return 0 if not left else 1 + depth(left - 1)

sys.setrecursionlimit(30_000)
assert depth(20_000) == 20_000
assert len(ast.dump(ast.parse("(" * 90 + "1" + ")" * 90))) > 10
"""


def allocator_output(**environment: str) -> list[str]:
    given = {name: value for name, value in os.environ.items() if name not in {"PYTHONMALLOC", "PYTHONDEVMODE"}}
    ran = subprocess.run(
        [sys.executable, "-c", ALLOCATOR],
        env=given | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ran.stdout.split()


def test_what_somebody_chose_is_kept() -> None:
    for chosen in ("pymalloc", "malloc_debug", "default"):
        assert allocator_output(PYTHONMALLOC=chosen) == ["False", "False", "False"]
    # Development mode adds checks to the allocators.
    assert allocator_output(PYTHONDEVMODE="1") == ["False", "False", "False"]


@pytest.mark.skipif(not has_glibc() or "t" in getattr(sys, "abiflags", ""), reason="another allocator")
def test_a_running_process_takes_memory_from_malloc() -> None:
    assert allocator_output() == ["True", "True", "False"]


GIVEN_BACK = """
import ctypes, sys
from pykbroker.node.process_memory import anonymous_bytes, use_malloc

use_malloc()
before = anonymous_bytes()
many = [[number, str(number), {number: [number]}] for number in range(200_000)]
kept = many[::250]
del many
ctypes.CDLL(None).malloc_trim(0)
print(anonymous_bytes() - before)
"""


@pytest.mark.skipif(not has_glibc() or anonymous_bytes() is None, reason="not Linux with glibc")
def test_few_objects_that_live_on_keep_little() -> None:
    given = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    ran = subprocess.run(
        [sys.executable, "-c", GIVEN_BACK], env=given, capture_output=True, text=True, check=True, timeout=60
    )
    assert int(ran.stdout) < 20_000_000


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


def objects_of_topics(prefix: str) -> list[str]:
    """Objects in this process of topics whose name begins so."""
    kinds = (Partition, PartitionLog, Leadership, TopicImage, PartitionImage)
    names = [type(found).__name__ for found in gc.get_objects() if type(found) in kinds]
    topics = [found for found in gc.get_objects() if type(found) is TopicImage and found.name.startswith(prefix)]
    return [name for name in names if name != "TopicImage"] + [topic.name for topic in topics]


def test_deleted_topics_leave_no_cycles(tmp_path: Path) -> None:
    """Settled objects of deleted topics are freed without the garbage collector."""
    gc.collect()
    with WholeBroker(tmp_path, {"file.delete.delay.ms": "0"}) as broker:
        gc.disable()
        try:
            assert broker.create_topic("other") == 0
            before = Counter(objects_of_topics("gone"))
            for number in range(3):
                assert broker.create_topic(f"gone-{number}", 3) == 0
                assert broker.produce(f"gone-{number}", batch(2)) == 0
                assert broker.fetch(f"gone-{number}", 0, 0).error_code == 0
            during = Counter(objects_of_topics("gone"))
            assert during["Partition"] == before["Partition"] + 9
            for number in range(3):
                assert broker.delete_topic(f"gone-{number}") == 0
            # The image before the newest is kept somewhere until the next one comes.
            assert broker.delete_topic("other") == 0
            deadline = time.monotonic() + 20
            while (left := Counter(objects_of_topics("gone")) - before) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not left
        finally:
            gc.enable()
