"""Prints the files over 500 lines and the functions over 60 of the production code: `python tools/long_code.py`.

It is a report and fails nothing. A length says that a file may hold two ideas; a limit made people save lines instead
of looking for the second one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = ("protocol", "logstore", "controller", "pykbroker")
LINKS = tuple(f"pykbroker/{folder}/" for folder in FOLDERS[:3])
FILE_LINES = 500
FUNCTION_LINES = 60


def long_code() -> Iterator[tuple[int, str]]:
    """Line count and name of everything that is longer; functions as `path:name`."""
    for folder in FOLDERS:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            name = path.relative_to(CHECKOUT).as_posix()
            if name.startswith(LINKS):
                continue
            text = path.read_text(encoding="utf-8")
            if (count := text.count("\n")) > FILE_LINES:
                yield count, name
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and lines_of(node) > FUNCTION_LINES:
                    yield lines_of(node), f"{name}:{node.name}"


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function; of one with decorators the body alone, as a command has an option a line before it."""
    first = node.body[0].lineno if node.decorator_list else node.lineno
    return (node.end_lineno or first) - first + 1


if __name__ == "__main__":
    found = sorted(long_code(), reverse=True)
    print(f"{len(found)} files over {FILE_LINES} or functions over {FUNCTION_LINES} lines (a report, not a check):")
    for count, name in found:
        print(f"  {count:5} {name}")
