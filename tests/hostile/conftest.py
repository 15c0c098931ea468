"""A broker process for hostile clients, and what has to be true of it afterwards."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.fuzz.target import BAD_SIGNS, Target
from tests.fuzz.world import World

GROWTH_MAX_BYTES = 5 * 1024 * 1024
SMALL_BYTES = 256 * 1024
"""A fall of less is no return of memory."""

QUIET_S = 75.0
"""Longer than the broker keeps encoded topics that no client uses (60 s)."""

LONG_S = 120.0
"""Longest wait in seconds for what must come: it ends a test only if the broker is at fault."""

Opener = Callable[[], socket.socket]


@pytest.fixture(scope="package")
def target() -> Iterator[Target]:
    """A broker that all hostile tests share: it has to outlive them all, without an error of its own."""
    target = Target()
    target.prepare(World())
    yield from running(target)


def running(target: Target) -> Iterator[Target]:
    """The broker; at the end it must be alive, without an error of its own in its log, and stop in order."""
    try:
        yield target
        lines = target.new_log_lines()
        assert target.is_alive, "\n".join(lines)
        assert not [line for line in lines if any(sign in line for sign in BAD_SIGNS)], "\n".join(lines)
        assert target.stop() == 0
    finally:
        target.stop()
        target.remove()


@pytest.fixture
def connect(target: Target) -> Iterator[Opener]:
    """Opens connections that are closed after the test."""
    opened: list[socket.socket] = []

    def connect() -> socket.socket:
        made = socket.create_connection(target.address, timeout=LONG_S)
        opened.append(made)
        return made

    yield connect
    for made in opened:
        made.close()


def wait_until_memory_is_returned(target: Target) -> None:
    """Waits until the resident memory has not fallen for `QUIET_S`: no leak hides in what is yet to be freed."""
    lowest, since = target.rss_bytes(), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        time.sleep(0.2)
        now = target.rss_bytes()
        if now < lowest - SMALL_BYTES:
            lowest, since = now, time.monotonic()


@contextmanager
def memory_comes_back(target: Target, measure: Callable[[Target], int] = Target.rss_bytes) -> Iterator[None]:
    """Checks that memory used inside the block is released: less than 5 MB and no descriptors stay in use.

    `Target.used_bytes` measures what many requests leave behind: pages that contain a few used blocks among free ones
    vary by more than 5 MB then.
    """
    before = measure(target)
    descriptors = target.descriptor_count()
    yield
    deadline = time.monotonic() + LONG_S
    while (grown := measure(target) - before) > GROWTH_MAX_BYTES or target.descriptor_count() > descriptors + 3:
        assert time.monotonic() < deadline, (
            f"{grown / 1e6:.1f} MB and {target.descriptor_count() - descriptors} descriptors stay behind"
        )
        time.sleep(0.2)
