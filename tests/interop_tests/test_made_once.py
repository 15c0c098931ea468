"""Folders of others' programs: made once, complete when they appear; a failed command says why."""

from __future__ import annotations

import io
import sys
import threading
from pathlib import Path

import pytest

from interop_tests.made_once import UnavailableError, locked, made_once, output_of


def python(*words: str) -> list[str]:
    return [sys.executable, "-c", *words]


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(work: Path) -> None:
        work.mkdir()
        (work / "program").write_text("x")
        made.append(work)

    folder = tmp_path / "cache" / "tool-1"
    assert made_once(folder, make) == made_once(folder, make) == folder
    assert (folder / "program").read_text() == "x"
    assert made == [tmp_path / "cache" / "tool-1.part"]


def test_a_folder_that_was_not_finished_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "tool-1"

    def fail(work: Path) -> None:
        work.mkdir()
        (work / "half").touch()
        raise UnavailableError("no network")

    with pytest.raises(UnavailableError, match="no network"):
        made_once(folder, fail)
    assert not folder.exists()
    made_once(folder, Path.mkdir)
    assert list(folder.iterdir()) == []


def test_the_second_process_says_so_and_waits_for_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cache" / "lock"
    order: list[str] = []
    is_told = threading.Event()

    class StandardError(io.StringIO):
        def flush(self) -> None:
            is_told.set()

    def wait_for_it() -> None:
        with locked(path, "waiting"):
            order.append("second")

    told = StandardError()
    monkeypatch.setattr(sys, "stderr", told)
    second = threading.Thread(target=wait_for_it)
    with locked(path):
        second.start()
        assert is_told.wait(30)
        order.append("first")
    second.join(30)
    assert order == ["first", "second"]
    assert told.getvalue() == "waiting\n"


def test_the_output_of_a_command(tmp_path: Path) -> None:
    program = "import os; print(os.getcwd(), os.environ['WORD'], 'PATH' in os.environ)"
    assert output_of(python(program), 30, tmp_path, {"WORD": "given"}) == f"{tmp_path} given True\n"


@pytest.mark.parametrize(
    ("written", "told"),
    [("first\\nlast", "last"), ("a\\nerror: b\\nc", "error: b"), ("", "no message")],
    ids=["the last line", "the line of the error", "nothing"],
)
def test_a_command_that_fails(written: str, told: str) -> None:
    with pytest.raises(UnavailableError, match=f"failed: {told}$"):
        output_of(python(f"import sys; sys.stderr.write('{written}'); sys.exit(1)"), 30)


def test_a_command_that_does_not_end() -> None:
    with pytest.raises(UnavailableError, match="did not end within 0 s"):
        output_of(python("import signal; signal.pause()"), 0.01)
