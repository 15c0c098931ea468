"""Writes the tests of each behaviour into docs/behaviours: `python tools/behaviours.py`; `--check` only compares.

A test cites a behaviour of Kafka by its number, P-51 or P-35 to P-42, in a docstring or comment. The pages in
docs/behaviours have one entry for each number, written by hand; the line of an entry that begins with "Tests:" comes
from here, and so do the numbers of each page in README.md. tests/architecture/test_behaviours.py fails for a number
without an entry, an entry without a test, and a page that is not what this module would write.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = CHECKOUT / "docs" / "behaviours"
TEST_FOLDERS = ("tests", "interop_tests", "spark_jobs")
CODE_FOLDERS = ("protocol", "logstore", "controller", "pykbroker", "benchmarks", *TEST_FOLDERS)

CITATION = re.compile(r"\bP-(\d+)(?: to P-(\d+))?\b")
PAGE_ROW = re.compile(r"^(\| \[[^\]]+\]\(([a-z-]+\.md)\) \| ).* \|$", re.MULTILINE)
ENTRY = re.compile(r"^## P-(\d+) (.+)$")
TESTS_LINE = "Tests:"
# A wider range is a remark on the whole catalogue and not on each of its entries.
WIDEST_RANGE = 12


class Entry(NamedTuple):
    """One behaviour as a page has it: its number and title, and the page's file name."""

    number: int
    title: str
    page: str


def cited_numbers(text: str) -> set[int]:
    """The numbers that a text cites; ranges count if they are at most WIDEST_RANGE wide."""
    numbers: set[int] = set()
    for first, last in CITATION.findall(text):
        begin, end = int(first), int(last or first)
        if end - begin < WIDEST_RANGE:
            numbers.update(range(begin, end + 1))
    return numbers


def citations(folders: tuple[str, ...]) -> dict[int, list[str]]:
    """For each cited number the files that cite it, as paths from the checkout, in order.

    Files whose own subject is this catalogue (this module's tests) do not count.
    """
    found: dict[int, list[str]] = defaultdict(list)
    for folder in folders:
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            name = path.relative_to(CHECKOUT).as_posix()
            if path.name == "test_behaviours.py" or name.startswith(_LINKS):
                continue
            for number in cited_numbers(path.read_text(encoding="utf-8")):
                found[number].append(name)
    return dict(found)


_LINKS = tuple(f"pykbroker/{folder}/" for folder in ("protocol", "logstore", "controller"))


def entries() -> Iterator[Entry]:
    """All entries of all pages."""
    for page in sorted(PAGES.glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            match = ENTRY.match(line)
            if match:
                yield Entry(int(match[1]), match[2], page.name)


def with_tests(text: str, tests: Mapping[int, list[str]]) -> str:
    """A page with the line of tests of each entry brought up to date."""
    lines: list[str] = []
    number: int | None = None

    def finish() -> None:
        if number is not None:
            while lines and not lines[-1]:
                lines.pop()
            links = ", ".join(f"[{name}](../../{name})" for name in tests.get(number, []))
            lines.extend(["", f"{TESTS_LINE} {links or 'none'}", ""])

    for line in text.splitlines():
        match = ENTRY.match(line)
        if match:
            finish()
            number = int(match[1])
        if not line.startswith(TESTS_LINE):
            lines.append(line)
    finish()
    return "\n".join(lines).rstrip("\n") + "\n"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as a text: P-1 to P-3, P-8."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"P-{run[0]} to P-{run[-1]}" if len(run) > 2 else ", ".join(f"P-{number}" for number in run) for run in runs
    )


def with_numbers(text: str, of_pages: Mapping[str, Iterable[int]]) -> str:
    """README.md with the numbers of each page brought up to date."""
    return PAGE_ROW.sub(lambda row: f"{row[1]}{ranges(of_pages.get(row[2], ()))} |", text)


def stale_pages() -> Iterator[tuple[Path, str]]:
    """Pages that are out of date, and their text as it should be."""
    tests = citations(TEST_FOLDERS)
    of_pages: dict[str, set[int]] = defaultdict(set)
    for entry in entries():
        of_pages[entry.page].add(entry.number)
    for page in sorted(PAGES.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = with_numbers(before, of_pages) if page.name == "README.md" else with_tests(before, tests)
        if after != before:
            yield page, after


def main(arguments: list[str]) -> int:
    """Rewrites the pages; with --check says which would change, and exits with 1 if any would."""
    stale = []
    for page, text in stale_pages():
        stale.append(page.name)
        if "--check" not in arguments:
            page.write_text(text, encoding="utf-8")
    print(
        f"{len(stale)} pages {'are out of date' if '--check' in arguments else 'written'}: {', '.join(stale) or 'none'}"
    )
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
