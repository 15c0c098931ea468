"""One byte-exact request and the expected reply per API and version, for what no stock client sends.

The cases are in frames/cases.py, the replies in frames/replies.json: what Apache Kafka 4.3.1 replied, with holes for
what differs from one broker to another (names, ids, addresses). A reply is filled from what came, encoded again by code
of this folder's own, and compared byte by byte.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from interop_tests.frames.cases import Case, all_cases
from interop_tests.frames.exchange import CLOSED, CORRELATION_ID, Broker, play
from interop_tests.frames.layouts import Api, Message, apis
from interop_tests.frames.match import differences, fill, project
from interop_tests.frames.record import REPLIES
from interop_tests.wire import Connection

pytestmark = [pytest.mark.area("wire"), pytest.mark.client("raw frames")]

SETTLE_S = 5.0
# Offered by Apache Kafka, and not asked here.
LEFT_OUT = {
    "a delegation token needs a secret key in the broker's configuration": range(38, 42),
    "the newer group protocols have clients of their own": [68, 69, *range(76, 80), *range(83, 93)],
    "client telemetry is off without a receiver of it": [71, 72],
    "changes the quorum of the broker under test": [80, 81],
}

Expected = dict[str, dict[str, Message]]


def _parameters() -> Iterator[Any]:
    for case in all_cases():
        for version in case.tried:
            yield pytest.param(
                case,
                version,
                id=f"{case.api}-v{version}: {case.behaviour}",
                marks=pytest.mark.behaviour(f"{case.api} version {version} {case.behaviour}, byte by byte"),
            )


@pytest.fixture(scope="module")
def asked(bootstrap: str) -> Broker:
    """The broker under test, with the versions that it offers."""
    return Broker(bootstrap)


@pytest.fixture(scope="module")
def expected() -> dict[str, Expected]:
    """The recorded replies: by case, by step, by range of versions."""
    found: dict[str, Expected] = json.loads(REPLIES.read_text())
    return found


class Judge:
    """Compares the replies to one case with what is expected."""

    def __init__(self, expected: Expected, version: int, variables: dict[str, Any]) -> None:
        self.steps = list(expected.values())
        self.version = version
        self.variables = variables
        self.problem = "nothing was asked"

    def __call__(self, number: int, api: Api, used: int, reply: Message | None, frame: bytes) -> bool:
        """True if the reply is the expected one; otherwise `problem` describes the difference."""
        wanted = next(reply for span, reply in self.steps[number].items() if self._covers(span))
        where = f"step {number + 1}, {api.name} version {used}"
        if CLOSED in (reply, wanted):
            self.problem = "" if reply == wanted else f"{where}: expected {wanted}, got {reply}"
            return not self.problem
        if reply is None:
            self.problem = f"{where}: not of Kafka's layout: {frame.hex()}"
            return False
        learnt = dict(self.variables)
        filled = fill(wanted, reply, learnt)
        try:
            same = api.encode_reply(used, CORRELATION_ID, filled) == frame
        except Exception as error:  # a hole filled with something of another type
            same, filled = False, {"cannot be encoded": repr(error)} | filled
        if same:
            self.problem = ""
            self.variables.update(learnt)
        else:
            lines = [where, *differences(project(api.reply, used, filled, used in api.flexible), reply)]
            self.problem = "\n".join([*lines, f"got {json.dumps(reply, ensure_ascii=False)}", f"frame {frame.hex()}"])
        return same

    def _covers(self, span: str) -> bool:
        low, high = span.split("-")
        return int(low) <= self.version <= int(high)


@pytest.mark.parametrize(("case", "version"), list(_parameters()))
def test_frame(case: Case, version: int, asked: Broker, expected: dict[str, Expected]) -> None:
    """The reply to a request, byte by byte."""
    if reason := asked.lacks(case, version):
        pytest.skip(reason)
    stem = f"frames-{os.urandom(4).hex()}"
    names = {"$topic": f"{stem}-topic", "$group": f"{stem}-group", "$transaction": f"{stem}-transaction"}
    judge = Judge(expected[case.name], version, asked.variables | names)
    with Connection(asked.bootstrap) as connection:
        play(connection, case, version, judge.variables, judge, SETTLE_S)
    assert not judge.problem, judge.problem


def test_every_version_has_a_frame(asked: Broker) -> None:
    """No version that the broker offers is without a case, but for the APIs that are left out with a reason."""
    left_out = {key for keys in LEFT_OUT.values() for key in keys}
    tried = {(case.api, version) for case in all_cases() for version in case.tried}
    missing = [
        f"{name} version {version}"
        for name, (lowest, highest) in asked.offered.items()
        for version in range(max(lowest, apis()[name].versions.first), min(highest, apis()[name].versions.last) + 1)
        if (name, version) not in tried and apis()[name].key not in left_out
    ]
    assert missing == []
