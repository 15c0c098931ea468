"""The events that a Java program has printed when it is killed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from interop_tests.java_process import JavaProcess
from interop_tests.verifiable import Tool

PRINTED = '{"name": "one"}\na warning\n{"name": "two"}\n{"name": "thr'


class Killed:
    """A process that was killed while it printed its third event."""

    def __init__(self) -> None:
        self.stdout = io.StringIO(PRINTED)


def test_half_an_event_of_a_killed_program_is_none(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    program: Any = JavaProcess.__new__(JavaProcess)
    program.process, program.events, program._log = Killed(), [], log
    program._read()
    assert program.events == [{"name": "one"}, {"name": "two"}]
    assert log.read_text() == 'a warning\n{"name": "thr'


def test_half_an_event_of_a_killed_tool_is_none() -> None:
    tool: Any = Tool.__new__(Tool)
    tool.process, tool.events, tool._other = Killed(), [], []
    tool._read()
    assert tool.events == [{"name": "one"}, {"name": "two"}]
    assert tool._other == ["a warning\n", '{"name": "thr']
