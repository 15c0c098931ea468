"""The catalogue of Kafka's behaviours, docs/behaviours, and the tests that cite it agree."""

from __future__ import annotations

from collections import Counter

from tools import behaviours


def test_every_number_that_is_cited_has_an_entry() -> None:
    known = {entry.number for entry in behaviours.entries()}
    cited = behaviours.citations(behaviours.CODE_FOLDERS)
    assert {number: files for number, files in cited.items() if number not in known} == {}


def test_every_entry_has_a_test() -> None:
    tests = behaviours.citations(behaviours.TEST_FOLDERS)
    assert [f"P-{entry.number} {entry.title}" for entry in behaviours.entries() if entry.number not in tests] == []


def test_a_number_has_one_entry() -> None:
    counts = Counter(entry.number for entry in behaviours.entries())
    assert {number: count for number, count in counts.items() if count > 1} == {}
    assert len(counts) > 150


def test_the_pages_name_the_tests_of_today() -> None:
    stale = [page.name for page, _ in behaviours.stale_pages()]
    assert stale == [], "run: python tools/behaviours.py"


def test_the_list_of_pages_has_every_page() -> None:
    listed = {row[2] for row in behaviours.PAGE_ROW.finditer((behaviours.PAGES / "README.md").read_text("utf-8"))}
    assert listed == {entry.page for entry in behaviours.entries()}


def test_citations_are_read() -> None:
    assert behaviours.cited_numbers("P-1, P-35 to P-37; not XP-2, P-4a or P-1 to P-160") == {1, 35, 36, 37}


def test_tests_stand_below_their_entry_and_replace_what_stood_there() -> None:
    page = "# Page\n\n## P-1 One\n\nText.\n\nTests:\n\nTests: old\n\n## P-2 Two\n\nMore.\n"
    assert behaviours.with_tests(page, {1: ["tests/a.py", "tests/b.py"]}) == (
        "# Page\n\n## P-1 One\n\nText.\n\nTests: [tests/a.py](../../tests/a.py), [tests/b.py](../../tests/b.py)\n\n"
        "## P-2 Two\n\nMore.\n\nTests: none\n"
    )


def test_the_list_of_pages_has_their_numbers() -> None:
    page = "| page | numbers |\n|---|---|\n| [One](one.md) | P-9 |\n"
    assert behaviours.with_numbers(page, {"one.md": {3, 1, 2, 8, 9}}) == page.replace("P-9", "P-1 to P-3, P-8, P-9")
