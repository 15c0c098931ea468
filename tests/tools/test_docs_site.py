"""The documentation site: which links stay, which become text, which are dead."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import docs_site
import pytest

PAGES = {"README.md", "docs/README.md", "docs/quorum.md", "examples/README.md"}
MKDOCS = docs_site.CHECKOUT / ".venvs" / "docs" / "bin" / "mkdocs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](quorum.md#on-disk)", "[a](quorum.md#on-disk)"),
        ("[a](../examples)", "[a](../examples/README.md)"),
        ("[a](../pyproject.toml), [`b`](../setup.py)", "`a`, `b`"),
        ("[a](https://kafka.apache.org), [b](#here)", "[a](https://kafka.apache.org), [b](#here)"),
        ("`[a-z](b*)`", "`[a-z](b*)`"),
        ("```\n[a](b)\n```\n[c](../LICENSE)", "```\n[a](b)\n```\n`c`"),
    ],
)
def test_links(text: str, expected: str) -> None:
    assert docs_site.converted("docs/README.md", text, PAGES) == (expected + "\n", [])


def test_a_dead_link() -> None:
    _, dead = docs_site.converted("docs/README.md", "[a](nothing.md) and [b](../LICENSE)", PAGES)
    assert dead == ["docs/README.md: nothing.md is not there"]


def test_no_page_has_a_dead_link(tmp_path: Path) -> None:
    assert docs_site.gather(tmp_path) == []
    assert (tmp_path / "reference" / "testing.md").exists()


@pytest.mark.parametrize("broken", ["[a](README.md#no-such-heading)", "::: pykbroker.no_such_name"])
def test_mkdocs_is_strict(tmp_path: Path, broken: str) -> None:
    """Of what this tool does not look at, anchors and names, MkDocs makes errors."""
    if not MKDOCS.exists():
        pytest.skip("MkDocs is not installed: `make docs` installs it")
    shutil.copy(docs_site.CHECKOUT / "mkdocs.yml", tmp_path)
    docs_site.gather(tmp_path / "build" / "docs" / "pages")
    (tmp_path / "pykbroker").symlink_to(docs_site.CHECKOUT / "pykbroker")
    command = [str(MKDOCS), "build", "--strict"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    page = tmp_path / "build" / "docs" / "pages" / "docs" / "README.md"
    page.write_text(page.read_text(encoding="utf-8") + f"\n{broken}\n", encoding="utf-8")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0
