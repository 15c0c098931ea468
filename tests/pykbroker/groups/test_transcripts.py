"""Golden transcripts of classic groups: commands, and below each what came of it. They read as stories.

`PYKBROKER_REWRITE_TRANSCRIPTS=1 pytest tests/pykbroker/groups/test_transcripts.py` writes them anew; commit only what
you can explain.

Commands (members are known by their names, times are in seconds):

    settings KEY=VALUE ...              arguments of `classic_config`, before anything else
    join NAME [static=I] [protocols=a,b] [topics=t,u] [session=S] [rebalance=S] [version=V]
    sync NAME [OTHER=BYTES ...]         with assignments if it leads
    beat NAME | leave NAME ... | commit NAME TOPIC OFFSET
    pass S                              lets time go by
    disk full | disk free               whether appends fail
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pykbroker.groups.offset_log import decode_record
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.log_messages.consumer_offsets import GroupMetadataValue, OffsetCommitKey
from pykbroker.protocol.messages.join_group import JoinGroupResponse
from pykbroker.protocol.messages.sync_group import SyncGroupResponse
from tests.pykbroker.groups.driver import START_MS, Driver, Parked, subscription

FOLDER = Path(__file__).parents[2] / "transcripts" / "groups"
SEPARATOR = "----"


class Story:
    """Runs commands on one group and says what happens."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.lines: list[str] = []
        self.options: dict[str, dict[str, str]] = {}
        self.ids: dict[str, str] = {}
        self.waiting: list[tuple[str, Parked]] = []
        self.written = 0
        self.state = "no group"
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "settings": self.settings,
            "join": self.join,
            "sync": self.sync,
            "beat": self.beat,
            "leave": self.leave,
            "commit": self.commit,
            "pass": self.let_pass,
            "disk": self.disk,
        }

    def run(self, command: str) -> list[str]:
        """The lines that belong below a command."""
        self.lines = []
        name, *arguments = command.split()
        self.commands[name](arguments)
        self.tell()
        return self.lines

    def tell(self) -> None:
        """Says what is new: records, answers, the state of the group."""
        # Answers tell new member ids, by which the records are then understood.
        answers = [
            f"{name} {self.answer(name, parked)}" for name, parked in self.waiting if parked.response is not None
        ]
        for key, value in self.driver.log[self.written :]:
            self.lines.append("log " + self.record(key, value))
        self.written = len(self.driver.log)
        self.lines += answers
        self.waiting = [(name, parked) for name, parked in self.waiting if parked.response is None]
        group = self.driver.shard.groups.get("g")
        state = "no group"
        if group is not None:
            leader = group.members.leader_id
            members = [self.name(m.member_id) + "*" * (m.member_id == leader) for m in group.members]
            pending = [self.name(member_id) + "?" for member_id in group.members.pending_joins]
            state = " ".join([group.state.value, f"generation {group.generation_id}", *members, *pending])
        if state != self.state:
            self.state = state
            self.lines.append(f"[{(self.driver.now_ms - START_MS) / 1000:g} s] {state}")

    def name(self, member_id: str) -> str:
        return next((name for name, known in self.ids.items() if known == member_id), member_id or "-")

    def answer(self, name: str, parked: Parked) -> str:
        response = parked.response
        if parked.error is not ErrorCode.NONE:
            return f"is told {parked.error.name}"
        if isinstance(response, SyncGroupResponse):
            return f"gets {response.assignment.decode() or 'nothing'}"
        assert isinstance(response, JoinGroupResponse)
        self.ids[name] = response.member_id
        others = " ".join(self.name(member.member_id) for member in response.members)
        role = f"leads {others}" if others else f"follows {self.name(response.leader)}"
        skips = " and skips the assignment" if response.skip_assignment else ""
        return f"joined generation {response.generation_id} with {response.protocol_name}, {role}{skips}"

    def record(self, key: bytes, value: bytes | None) -> str:
        decoded = decode_record(key, value)
        assert decoded is not None
        if isinstance(decoded.key, OffsetCommitKey):
            offset = "none" if decoded.value is None else str(getattr(decoded.value, "offset", ""))
            return f"offset {decoded.key.topic}-{decoded.key.partition}: {offset}"
        if not isinstance(decoded.value, GroupMetadataValue):
            return "group: none"
        members = [f"{self.name(m.member_id)}={bytes(m.assignment).decode()}" for m in decoded.value.members]
        return " ".join([f"group: generation {decoded.value.generation}", *members])

    # Commands

    def settings(self, arguments: list[str]) -> None:
        self.driver = Driver(**{key: int(value) for key, value in (a.split("=") for a in arguments)})

    def join(self, arguments: list[str]) -> None:
        name, *given = arguments
        options = self.options.setdefault(name, {}) | dict(a.split("=") for a in given)
        self.options[name] = options
        metadata = subscription(*options.get("topics", "t").split(","))
        version = int(options.get("version", "9"))

        def join(member_id: str) -> Parked:
            return self.driver.join(
                member_id,
                client_id=name,
                instance_id=options.get("static"),
                version=version,
                protocols=[(protocol, metadata) for protocol in options.get("protocols", "range").split(",")],
                session_ms=int(float(options.get("session", "10")) * 1000),
                rebalance_ms=int(float(options.get("rebalance", "60")) * 1000),
            )

        parked = join(self.ids.get(name, "") if "static" not in options else "")
        if parked.response is not None and parked.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.ids[name] = parked.join.member_id
            parked = join(self.ids[name])
        group = self.driver.shard.groups.get("g")
        for member in group.members if group is not None else ():
            if member.join_waiter is parked:
                self.ids[name] = member.member_id
        self.waiting.append((name, parked))

    def sync(self, arguments: list[str]) -> None:
        name, *given = arguments
        assignments = {self.ids[other]: text.encode() for other, text in (a.split("=") for a in given)}
        parked = self.driver.sync(
            self.ids[name],
            self.driver.group().generation_id,
            assignments,
            instance_id=self.options[name].get("static"),
            protocol_name=None,
        )
        self.waiting.append((name, parked))

    def beat(self, arguments: list[str]) -> None:
        [name] = arguments
        error = self.driver.heartbeat(self.ids[name], self.driver.group().generation_id)
        self.lines.append(f"{name} is told {error.name}")

    def leave(self, arguments: list[str]) -> None:
        errors = self.driver.leave(*((self.ids[name], None) for name in arguments))
        self.lines += [f"{name} is told {error.name}" for name, error in zip(arguments, errors, strict=True)]

    def commit(self, arguments: list[str]) -> None:
        name, topic, offset = arguments
        generation_id = self.driver.group().generation_id
        error = self.driver.commit(int(offset), topic=topic, generation_id=generation_id, member_id=self.ids[name])
        self.lines.append(f"{name} is told {error.name}")

    def let_pass(self, arguments: list[str]) -> None:
        """Second by second, so that the state is told with the time at which it changed."""
        end_ms = self.driver.now_ms + int(float(arguments[0]) * 1000)
        while self.driver.now_ms < end_ms:
            self.driver.advance(min(500, end_ms - self.driver.now_ms))
            self.tell()

    def disk(self, arguments: list[str]) -> None:
        is_full = arguments == ["full"]
        self.driver.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_full else ErrorCode.NONE


def play(text: str) -> str:
    """The transcript with what really happens below its commands."""
    story = Story()
    parts = []
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        head = lines[: lines.index(SEPARATOR)] if SEPARATOR in lines else lines
        told = [line for command in head if not command.startswith("#") for line in story.run(command)]
        parts.append("\n".join([*head, SEPARATOR, *told]))
    return "\n\n".join(parts) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    played = play(text)
    if os.environ.get("PYKBROKER_REWRITE_TRANSCRIPTS"):
        path.write_text(played)
    else:
        assert played == text
