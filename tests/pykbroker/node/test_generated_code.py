"""Bytecode of generated texts is kept in a file, and never used for another text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pykbroker.node import generated_code
from pykbroker.node.generated_code import CompiledTexts

TEXT = "def made(x):\n    return x + 1\n"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are really compiled."""
    texts: list[str] = []

    def counted(text: str, *arguments: object, **named: object) -> object:
        texts.append(text)
        return compile(text, *arguments, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(generated_code, "compile", counted, raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return texts


def result_of(texts: CompiledTexts, text: str = TEXT, name: str = "<made>") -> int:
    names: dict[str, Any] = {}
    exec(texts.compile(text, name, "exec"), names)
    made = names["made"]
    assert made.__code__.co_filename == name
    value: int = made(1)
    return value


def kept_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "__pycache__").iterdir()
    return file


def test_a_text_is_compiled_once(tmp_path: Path, compiled: list[str]) -> None:
    source = str(tmp_path / "module.py")
    for _ in range(3):
        texts = CompiledTexts(source)
        assert result_of(texts) == 2
        texts.save()
    assert compiled == [TEXT]
    # Another text, and the same text under another name, are others.
    texts = CompiledTexts(source)
    assert result_of(texts, TEXT.replace("1", "5")) == 6
    assert result_of(texts, TEXT, "<other>") == 2
    assert len(compiled) == 3


def test_a_damaged_file_counts_as_none(tmp_path: Path, compiled: list[str]) -> None:
    source = str(tmp_path / "module.py")
    texts = CompiledTexts(source)
    result_of(texts)
    texts.save()
    good = kept_file(tmp_path).read_bytes()
    for bad in (b"", good[:3], good[:-1], good[:40] + b"?" + good[41:], b"\0\0\0\0" + good[4:]):
        kept_file(tmp_path).write_bytes(bad)
        compiled.clear()
        texts = CompiledTexts(source)
        assert result_of(texts) == 2
        assert compiled == [TEXT]
        texts.save()
        assert kept_file(tmp_path).read_bytes() == good


def test_nothing_is_written_where_python_writes_no_bytecode(
    tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    texts = CompiledTexts(str(tmp_path / "module.py"))
    result_of(texts)
    texts.save()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "__pycache__").write_bytes(b"a file in the way")
    texts.save()
    assert [path.name for path in tmp_path.iterdir()] == ["__pycache__"]
    assert compiled == [TEXT]


def test_classes_of_trio_are_the_same_with_kept_bytecode(tmp_path: Path) -> None:
    """In interpreters of their own: the second one compiles nothing of trio, and runs."""
    program = f"""
import builtins, sys
from pykbroker.node import generated_code, lean_trio
sys.dont_write_bytecode = False
lean_trio.__file__ = {str(tmp_path / "lean.py")!r}
count = 0
def counted(*arguments, **named):
    global count
    count += 1
    return builtins.compile(*arguments, **named)
generated_code.compile = counted
lean_trio.import_trio()
import attr._make, trio
assert not {"compile", "hash"} & vars(attr._make).keys()
async def main():
    sender, receiver = trio.open_memory_channel(1)
    with trio.move_on_after(5) as scope:
        await sender.send(7)
    print(count, await receiver.receive(), sender.statistics(), scope.cancelled_caught)
trio.run(main)
"""
    printed = []
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        printed.append(ran.stdout.strip())
    first, second = (text.split(" ", 1) for text in printed)
    assert first[1] == second[1]
    assert int(first[0]) > 20
    assert second[0] == "0"
