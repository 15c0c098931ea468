"""The world that clusters are simulated in keeps its own rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from tests.simulation.disk import SECTOR, Disk, ProcessEnded
from tests.simulation.network import Network, SimulatedListening, SimulatedStream
from tests.simulation.timeline import NODE, Timeline

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("seed", ["one-3", "three-2", "voters-2"])
def test_a_seed_is_the_same_in_every_process(seed: str) -> None:
    def lines(hash_seed: str) -> list[str]:
        command = [sys.executable, "-m", "tests.simulation", "--seed", seed]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(CHECKOUT)}
        ran = subprocess.run(command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        # The last line has the processor time.
        return ran.stdout.splitlines()[:-1]

    first = lines("1")
    assert len(first) > 100
    assert first == lines("2")


def in_world(seed: str, main: object) -> Timeline:
    timeline = Timeline(seed)
    timeline.run(lambda: main(timeline))  # type: ignore[operator]
    return timeline


def test_a_machine_that_is_held_does_nothing_until_it_is_released() -> None:
    steps: list[tuple[str, float]] = []

    async def walk(name: str) -> None:
        NODE.set(name)
        for _ in range(4):
            await trio.sleep(1)
            steps.append((name, trio.current_time()))

    async def main(timeline: Timeline) -> None:
        timeline.call_at(1.5, timeline.hold, "a")
        timeline.call_at(3.25, timeline.release, "a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(walk, "a")
            nursery.start_soon(walk, "b")

    in_world("held", main)
    assert [at for name, at in steps if name == "a"] == [1, 3.25, 4.25, 5.25]
    assert [at for name, at in steps if name == "b"] == [1, 2, 3, 4]


async def connected(network: Network) -> tuple[SimulatedStream, SimulatedStream]:
    listening: SimulatedListening
    (listening,) = network.bind_of("b")("b", 1)
    listening.listen(5)
    stream = await network.opener_of("a")("b", 1)
    accepted, _ = listening.accept()
    return stream, accepted


def test_what_a_cut_swallows_arrives_when_it_is_mended() -> None:
    async def main(timeline: Timeline) -> None:
        network = Network(timeline, "cut")
        network.add("a")
        network.add("b")
        ours, theirs = await connected(network)
        await ours.send_all(b"one ")
        network.cut("a", "b")
        await ours.send_all(b"two ")
        await theirs.send_all(b"the other way")
        assert await ours.receive_some() == b"the other way"
        timeline.call_at(5, network.mend, "a", "b")
        received = b""
        while len(received) < 8:
            received += await theirs.receive_some()
        assert received == b"one two "
        assert trio.current_time() > 5

    in_world("cut", main)


def test_a_killed_process_resets_its_connections_and_a_machine_without_power_says_nothing() -> None:
    async def main(timeline: Timeline) -> None:
        network = Network(timeline, "ends")
        network.add("a")
        network.add("b")
        ours, _ = await connected(network)
        network.kill("b")
        with pytest.raises(trio.BrokenResourceError):
            await ours.receive_some()
        ours, _ = await connected(network)
        network.power_off("b")
        await ours.send_all(b"anybody there?")
        with trio.move_on_after(60) as scope:
            await ours.receive_some()
        assert scope.cancelled_caught
        network.power_on("b")
        await ours.send_all(b"and now?")
        with pytest.raises(trio.BrokenResourceError):
            await ours.receive_some()
        with pytest.raises(ConnectionRefusedError):
            await network.opener_of("a")("b", 1)

    in_world("ends", main)


def nothing(*arguments: object) -> None: ...


def test_loss_of_power_keeps_what_is_synced_and_whole_sectors_of_the_rest() -> None:
    kept = set()
    for seed in range(60):
        disk = Disk(str(seed), lambda: 0)
        mounted = disk.mount(nothing, nothing)
        mounted.make_directory("/d")
        file = mounted.open("/d/f", create=True)
        mounted.append_mapped(file, [b"s" * 700], 700, 0, "/d/f")
        mounted.sync(file)
        mounted.append_mapped(file, [b"n" * 3000], 3000, 700, "/d/f")
        mounted.trim(file)
        mounted.die()
        disk.lose_power()
        content = bytes(disk.mount(nothing, nothing).read_file("/d/f") or b"")
        assert content[:700] == b"s" * 700
        for start in range(2 * SECTOR, 3700, SECTOR):
            assert len(set(content[start : start + SECTOR])) <= 1, "a sector is written or it is not"
        kept.add(content.count(b"n"))
    assert 0 in kept
    assert 3000 in kept
    assert len(kept) > 4


def test_kill_leaves_what_was_written_and_a_part_of_what_was_being_written() -> None:
    sizes = set()
    for seed in range(30):
        disk = Disk(str(seed), lambda: 0)
        mounted = disk.mount(nothing, nothing)
        mounted.make_directory("/d")
        file = mounted.open("/d/f", create=True)
        mounted.append(file, [b"whole"], 5, 0, "/d/f")
        mounted.writes_left = 1
        with pytest.raises(ProcessEnded):
            mounted.append(file, [b"x" * 100], 100, 5, "/d/f")
        with pytest.raises(ProcessEnded):
            mounted.write_file("/d/g", b"a dead process writes nothing")
        content = disk.mount(nothing, nothing).read_file("/d/f") or b""
        assert content.startswith(b"whole")
        sizes.add(len(content))
        assert not disk.mount(nothing, nothing).exists("/d/g")
    assert len(sizes) > 5


def test_names_that_were_not_synced_go_back_in_reverse_order() -> None:
    seen = set()
    for seed in range(40):
        disk = Disk(str(seed), lambda: 0)
        mounted = disk.mount(nothing, nothing)
        mounted.make_directory("/d")
        mounted.write_file("/d/a", b"old")
        mounted.write_file("/d/b", b"new", durable=False)
        mounted.rename("/d/b", "/d/a")
        disk.lose_power()
        after = disk.mount(nothing, nothing)
        seen.add((after.exists("/d/a"), after.exists("/d/b")))
        assert after.exists("/d/a")
        if after.exists("/d/b"):
            assert after.read_file("/d/a") == b"old"
    assert len(seen) == 2
