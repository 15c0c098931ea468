"""python -m tests.fuzz --seconds 600 [--seed N] [--connections N] [--round S] [--out FOLDER] | --replay FILE

Rounds of frames to a broker process of its own. After each round everything is closed and deleted, and memory and
descriptors are compared with what they were after the first, which has warmed everything up. Exit code 1 says that
something was found; each finding is a file of frames in FOLDER that `--replay` sends again.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import sasl
from tests.fuzz.client import FuzzClient
from tests.fuzz.frames import FrameMaker
from tests.fuzz.replay import ON_SASL, ON_TLS, replay
from tests.fuzz.sasl import SaslFuzz, Step
from tests.fuzz.target import BAD_SIGNS, CHECKOUT, Target
from tests.fuzz.tls import TlsFuzz
from tests.fuzz.world import World

STALL_S = 2.0
SETTLE_S = 12.0
"""The broker gives back freed memory every few seconds."""

GROWTH_MAX_BYTES = 5 * 1024 * 1024
CHUNK_S = 0.5
TLS_CONNECTIONS = 10
"""Hostile connections to the listener with TLS after each chunk of frames."""

SASL_CONNECTIONS = 10
"""The same to the listener with SASL."""


class Findings:
    """Findings of a run; each is written to a file that `--replay` reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self.count = 0

    def add_tls(self, kind: str, text: str, steps: Sequence[Step]) -> None:
        """As `add`, for what was done on one connection to the listener with TLS."""
        self.add(kind, text, steps, place=ON_TLS)

    def add_sasl(self, kind: str, text: str, steps: Sequence[Step]) -> None:
        """As `add`, for what was done on one connection to the listener with SASL."""
        self.add(kind, text, steps, place=ON_SASL)

    def add(self, kind: str, text: str, frames: Sequence[Step], *, place: str = "") -> None:
        """Notes a finding, unless it was noted already. `place` is `ON_SASL`, `ON_TLS` or empty."""
        key = kind + "".join(
            re.findall(r'File "\S+", line \d+', text)[-1:] or re.sub(r"0x[0-9a-f]+|\d+", "N", text)[:200]
        )
        if key in self._seen:
            return
        self._seen.add(key)
        self.count += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{kind}-{self.count:03d}.txt"
        comment = "\n".join(f"# {line}" for line in text.splitlines())
        login = "" if place == ON_TLS else "login "
        lines = [f"{login}{step}" if isinstance(step, str) else step.hex() for step in frames]
        path.write_text("\n".join([comment, *([place] if place else []), *lines]) + "\n")
        print(f"FOUND {kind}: {text[:1500]}\n      {len(frames)} frame(s) in {path}", flush=True)


def watch_log(target: Target, client: FuzzClient, tls: TlsFuzz, logins: SaslFuzz, findings: Findings) -> None:
    """Turns what must not be in the broker's log into findings, with the frames of the connection that it names."""
    block: list[str] = []
    for line in [*target.new_log_lines(), "2000-01-01 the end"]:
        if not re.match(r"\d{4}-\d\d-\d\d ", line):
            block.append(line)
            continue
        text = "\n".join(block)
        if any(sign in text for sign in BAD_SIGNS):
            found = re.search(r"127\.0\.0\.1:(\d+)", block[0])
            port = int(found[1]) if found else 0
            # The end of a traceback says most, and tells findings apart.
            shown = "\n".join((block[0], *block[-9:])) if len(block) > 10 else text
            frames = client.history_of(port) if port else list(client.recent)
            if not frames and port in logins.history:
                findings.add_sasl("log", shown, logins.history[port])
            elif not frames and port in tls.history:
                findings.add_tls("log", shown, tls.history[port])
            else:
                findings.add("log", shown, frames)
        block = [line]


def settle(target: Target, floor: tuple[int, int] | None) -> None:
    """Waits until memory is back where it was, or for as long as it may take."""
    deadline = time.monotonic() + SETTLE_S
    time.sleep(1)
    while time.monotonic() < deadline and (floor is None or target.rss_bytes() > floor[0] + 1_000_000):
        time.sleep(0.5)


def fuzz(arguments: argparse.Namespace) -> int:
    findings = Findings(Path(arguments.out))
    generator = random.Random(arguments.seed)
    world = World()
    target = Target(dict(setting.split("=", 1) for setting in arguments.override), tls=True, sasl=sasl.SETTINGS)
    tls = TlsFuzz(target.tls_address, target.tls_context(), generator, findings.add_tls)
    logins = SaslFuzz(target.sasl_address, generator, findings.add_sasl)
    began = time.monotonic()
    floor: tuple[int, int] | None = None
    sent = 0
    many = 0
    try:
        target.prepare(world)
        target.make_users(sasl.USERS)
        while target.is_alive and time.monotonic() - began < arguments.seconds and sent < arguments.frames:
            maker = FrameMaker(world, generator)
            client = FuzzClient(target.address, maker, world, generator, arguments.connections, findings.add)
            round_end = min(time.monotonic() + arguments.round, began + arguments.seconds)
            slowest = 0.0
            while time.monotonic() < round_end and target.is_alive and sent + client.frames_sent < arguments.frames:
                target.prepare(world)
                many_before = maker.many_count
                client.run(CHUNK_S)
                tls.run(TLS_CONNECTIONS)
                logins.run(SASL_CONNECTIONS)
                if maker.many_count > many_before:
                    many += maker.many_count - many_before
                    target.delete_large()
                answer_s = target.answer_time_s(10)
                slowest = max(slowest, answer_s)
                if answer_s > STALL_S and target.is_alive:
                    findings.add("stall", f"a new client waited {answer_s:.1f} s", list(client.recent))
                watch_log(target, client, tls, logins, findings)
            if not target.is_alive:
                watch_log(target, client, tls, logins, findings)
                text = f"the broker ended with exit code {target.process.wait()}"
                findings.add("death", f"{text}:\n{target.log_path.read_text()[-3000:]}", list(client.recent))
                break
            client.close()
            target.clean_up()
            settle(target, floor)
            watch_log(target, client, tls, logins, findings)
            sent += client.frames_sent
            used = (target.rss_bytes(), target.descriptor_count())
            print(
                f"{time.monotonic() - began:6.0f} s  {sent:8d} frames  "
                f"{client.answers / client.frames_sent:4.0%} answered  {client.closed:6d} closed  "
                f"slowest answer {slowest * 1000:5.0f} ms  "
                f"{used[0] / 1e6:6.1f} MB  {used[1]:4d} descriptors",
                flush=True,
            )
            floor = used if floor is None else (min(floor[0], used[0]), min(floor[1], used[1]))
        if target.is_alive and floor is not None:
            if used[0] - floor[0] > GROWTH_MAX_BYTES:
                findings.add("memory", f"{(used[0] - floor[0]) / 1e6:.1f} MB more than at its least", [])
            if used[1] - floor[1] > 50:
                findings.add("descriptors", f"{used[1] - floor[1]} more open files than at the least", [])
            if code := target.stop():
                findings.add("stop", f"exit code {code}:\n{target.log_path.read_text()[-3000:]}", [])
    finally:
        target.stop()
        if not findings.count:
            target.remove()
        else:
            print(f"the broker's log: {target.log_path}")
    print(
        f"{sent} frames, {many} of them for more than a hundred partitions, {tls.connections} connections with TLS, "
        f"{logins.connections} with SASL; "
        f"{findings.count} finding(s)"
    )
    return 1 if findings.count else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--frames", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--connections", type=int, default=60)
    parser.add_argument("--round", type=float, default=30)
    parser.add_argument("--out", default=str(CHECKOUT / "reports" / "fuzz"))
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="a setting of the broker")
    arguments = parser.parse_args()
    if arguments.replay:
        return replay(arguments.replay)
    print(f"seed {arguments.seed}", flush=True)
    return fuzz(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
