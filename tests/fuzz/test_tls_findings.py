"""Findings at the listener with TLS can be sent again: the file has the steps, and the steps give the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.fuzz.__main__ import Findings
from tests.fuzz.replay import ON_TLS, read_finding
from tests.fuzz.tls import HANDSHAKE, play

STEPS = [HANDSHAKE, "record 0a0b0c xor=1:255", "raw 1603"]


class Sent:
    """A session without TLS that notes what is sent."""

    def __init__(self) -> None:
        self.socket = self
        self.pieces: list[bytes] = []

    def shake_hands(self) -> None:
        self.pieces.append(b"handshake")

    def encrypted(self, data: bytes) -> bytes:
        return data

    def sendall(self, data: bytes) -> None:
        self.pieces.append(data)


def test_a_finding_has_the_steps_of_its_connection(tmp_path: Path) -> None:
    findings = Findings(tmp_path)
    findings.add_tls("answer", "none\nat all", STEPS)
    assert read_finding(tmp_path / "answer-001.txt") == (ON_TLS, STEPS)


@pytest.mark.parametrize(
    ("step", "pieces"),
    [
        (HANDSHAKE, [b"handshake"]),
        ("raw 1603", [b"\x16\x03"]),
        ("record 0a0b0c", [b"\x0a\x0b\x0c"]),
        ("record 0a0b0c xor=1:255", [b"\x0a\xf4\x0c"]),
        ("record 0a0b0c cut=2", [b"\x0a\x0b"]),
        ("record 0a0b0c pieces=1,1", [b"\x0a", b"\x0b", b"\x0c"]),
    ],
)
def test_steps(step: str, pieces: list[bytes]) -> None:
    sent = Sent()
    play(cast("Any", sent), [step])
    assert sent.pieces == pieces
