"""The machines of a simulated cluster, each with a disk and a broker process that may end and come back."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.logstore.errors import StorageError
from pykbroker.node.broker import run_broker
from pykbroker.node.host import Host
from tests.simulation.disk import Disk, MountedDisk
from tests.simulation.timeline import NODE
from tests.support.in_place import run_in_place

if TYPE_CHECKING:
    from tests.simulation.world import World

WALL_CLOCK_MS = 1_700_000_000_000


class _Life:
    """One process, from its start to its end."""

    def __init__(self, mount: MountedDisk) -> None:
        self.mount = mount
        self.scope = trio.CancelScope()
        self.asked_to_stop = trio.Event()
        self.ended = trio.Event()
        self.is_ready = False


class Machine:
    """One machine. Everything here is at once but for `start` and `stop`, which begin or end a process."""

    def __init__(self, world: World, name: str, properties: Mapping[str, str]) -> None:
        self.world = world
        self.name = name
        self.config = BrokerConfig.from_properties(properties)
        self.disk = Disk(f"{world.seed} {name}", self.wall_clock_ms)
        self.skew_ms = 0
        self.lives = 0
        self.is_failing = False
        self.log_directories = properties["log.dirs"].split(",")
        # Log directories whose part of the disk has failed in the life of the present process.
        self.failed_directories: set[str] = set()
        self._life: _Life | None = None
        world.network.add(name)

    @property
    def is_up(self) -> bool:
        """True while a process runs on the machine, ready or not."""
        return self._life is not None

    @property
    def is_ready(self) -> bool:
        return self._life is not None and self._life.is_ready

    def wall_clock_ms(self) -> int:
        return WALL_CLOCK_MS + self.skew_ms + int(self.world.timeline.now * 1000)

    now_ms = wall_clock_ms

    def start(self) -> None:
        """Begins a process on what the disk has."""
        assert self._life is None
        self.lives += 1
        self.failed_directories = {self.disk.failing_path} - {""}
        world = self.world
        life = self._life = _Life(self.disk.mount(self._slow_sync, self._died))
        world.network.power_on(self.name)
        opener = world.network.opener_of(self.name)

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            if not life.mount.is_alive:
                raise OSError("this process is dead")
            stream: trio.abc.Stream = await opener(host, port)
            return stream

        host = Host(
            life.mount,
            self,
            random.Random(f"{world.seed} {self.name} life {self.lives}"),
            open_stream,
            world.network.bind_of(self.name),
            run_in_place,
            world.observed,
        )
        world.trace.add(self.name, f"starts, life {self.lives}")
        world.nursery.start_soon(self._live, life, host)

    async def _live(self, life: _Life, host: Host) -> None:
        NODE.set(self.name)

        def ready(address: object) -> None:
            life.is_ready = True
            self.world.trace.add(self.name, "is ready")

        try:
            with life.scope:
                await run_broker(
                    self.config,
                    cluster_id=self.world.cluster_id,
                    on_ready=ready,
                    host=host,
                    stop=life.asked_to_stop,
                )
        except BaseException as error:
            why = _without_cancellation(error)
            if self._life is life and why is not None:
                self._ended_by_itself(why, was_asked=life.asked_to_stop.is_set())
        finally:
            if self._life is life:
                self._life = None
                self.world.network.kill(self.name)
                self.world.ended(self)
            life.ended.set()

    def _ended_by_itself(self, error: BaseException, *, was_asked: bool) -> None:
        # A stop says so if it could not close the logs of a directory that has failed.
        may_fail = self.is_failing or (was_asked and self.failed_directories)
        if may_fail and _is_only(error, StorageError):
            self.world.trace.add(self.name, f"gave up: {_leaves(error)}")
        else:
            self.world.broken(f"{self.name} ended by itself: {_leaves(error)}", error)

    def fail_directory(self, path: str) -> None:
        """Each call on a file in a log directory fails, until `disk.failing_path` is "" again."""
        self.world.trace.add(self.name, f"has a disk that fails under {path}")
        self.disk.failing_path = path
        self.failed_directories.add(path)

    def kill(self) -> None:
        """kill -9."""
        if (life := self._end("is killed")) is not None:
            self.world.network.kill(self.name)
            life.scope.cancel()

    def kill_in_write(self, count: int) -> None:
        """kill -9 in the midst of a write, so many writes from now."""
        if self._life is not None:
            self._life.mount.writes_left = count

    def kill_in_write_never(self) -> None:
        if self._life is not None:
            self._life.mount.writes_left = None

    def cut_power(self) -> None:
        """The machine loses power, also one whose process had ended."""
        life = self._end("loses power")
        self.world.network.power_off(self.name)
        lost = self.disk.lose_power()
        self.world.trace.add(self.name, f"lost {lost} bytes")
        if life is not None:
            life.scope.cancel()

    async def stop(self) -> None:
        """SIGTERM: the process ends in order."""
        life = self._life
        if life is None:
            return
        self.world.trace.add(self.name, "is stopped")
        self.resume()
        life.asked_to_stop.set()
        await life.ended.wait()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after so long."""
        if self._life is not None and not self.world.timeline.is_held(self.name):
            self.world.trace.add(self.name, f"stands still for {seconds:.3f} s")
            self.world.timeline.hold(self.name)
            self.world.timeline.call_later(seconds, self._resume_life, self._life)

    def _resume_life(self, life: _Life) -> None:
        if self._life is life:
            self.resume()

    def resume(self) -> None:
        if self.world.timeline.is_held(self.name):
            self.world.timeline.release(self.name)

    def _end(self, how: str) -> _Life | None:
        life, self._life = self._life, None
        if life is not None:
            self.world.trace.add(self.name, how)
            life.mount.die()
            # What it still does ends with the first thing that it asks of disk or network.
            self.resume()
        return life

    def _died(self) -> None:
        """The process was killed in a write."""
        life, self._life = self._life, None
        self.world.trace.add(self.name, "is killed in a write")
        self.world.network.kill(self.name)
        if life is not None:
            life.scope.cancel()

    def _slow_sync(self, seconds: float) -> None:
        """The event loop of this node stood still for so long; what it sends next leaves later."""
        network = self.world.network
        now = self.world.timeline.now
        network.busy_until[self.name] = max(network.busy_until.get(self.name, 0.0), now) + seconds
        if self._life is not None and not self.world.timeline.is_held(self.name):
            self.world.timeline.hold(self.name)
            self.world.timeline.call_later(seconds, self._resume_life, self._life)


def _is_only(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_only(part, kind) for part in error.exceptions)
    return isinstance(error, kind)


def _without_cancellation(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return None if isinstance(error, trio.Cancelled) else error


def _leaves(error: BaseException) -> str:
    """The errors in a group, without what would be another text in each replay."""
    if isinstance(error, BaseExceptionGroup):
        return ", ".join(map(_leaves, error.exceptions))
    return f"{type(error).__name__}: {error}"
