"""Builds the documentation site: `python tools/docs_site.py [mkdocs]`, by default with the `mkdocs` beside this Python.

MkDocs wants its pages in one folder; ours lie where they belong, and link to one another and to files of the checkout.
So they are copied to build/docs/pages, with the same paths. A link to another page stays; one to a file or folder that
is no page becomes its text, as the site has no source files; one to nothing at all is an error. mkdocs.yml has the
order of the pages and makes each warning of MkDocs an error: links between pages, anchors in them, names in the API
pages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = CHECKOUT / "build" / "docs" / "pages"
# Beside all pages in docs/.
OTHER_PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "examples/README.md",
    "spark_jobs/README.md",
    "interop_tests/README.md",
    "tests/simulation/README.md",
    "benchmarks/README.md",
)

# What stands in a code span is no link; a link's text may be one.
LINK = re.compile(r"`[^`]+`|\[([^\[\]]+)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")

REFERENCE = {
    "testing.md": "# LocalBroker and LocalCluster\n\n::: pykbroker.LocalBroker\n\n::: pykbroker.LocalCluster\n",
    "pytest.md": "# pytest plugin\n\n::: pykbroker.testing.pytest_plugin\n",
    "protocol.md": "# Wire format\n\n::: pykbroker.protocol.codec\n\n::: pykbroker.protocol.records.batch\n",
}


def sources() -> list[str]:
    """The pages, as paths from the checkout."""
    inside = (path.relative_to(CHECKOUT).as_posix() for path in (CHECKOUT / "docs").rglob("*.md"))
    return [*OTHER_PAGES, *sorted(inside)]


def converted(page: str, text: str, pages: set[str]) -> tuple[str, list[str]]:
    """A page for the site, and its dead links."""
    dead: list[str] = []

    def convert(match: re.Match[str]) -> str:
        label, target = match.groups()
        if label is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        path, anchor, fragment = target.partition("#")
        found = os.path.normpath(os.path.join(os.path.dirname(page), path))
        if os.path.join(found, "README.md") in pages:
            path, found = os.path.join(path, "README.md"), os.path.join(found, "README.md")
        if found in pages:
            return f"[{label}]({path}{anchor}{fragment})"
        if not (CHECKOUT / found).exists():
            dead.append(f"{page}: {target} is not there")
        return label if "`" in label else f"`{label}`"

    lines = []
    is_code = False
    for line in text.splitlines():
        is_code ^= FENCE.match(line) is not None
        lines.append(line if is_code else LINK.sub(convert, line))
    return "\n".join(lines) + "\n", dead


def gather(folder: Path = PAGES) -> list[str]:
    """Writes all pages into a new folder; returns the dead links."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = sources()
    dead: list[str] = []
    for page in pages:
        text, found = converted(page, (CHECKOUT / page).read_text(encoding="utf-8"), set(pages))
        dead += found
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
    for name, text in REFERENCE.items():
        (folder / "reference").mkdir(exist_ok=True)
        (folder / "reference" / name).write_text(text, encoding="utf-8")
    return dead


def main(arguments: list[str]) -> int:
    """Builds the site; the exit code is 1 when a link is dead, else that of MkDocs."""
    dead = gather()
    if dead:
        print("\n".join(dead), file=sys.stderr)
        return 1
    mkdocs = arguments[0] if arguments else str(Path(sys.executable).parent / "mkdocs")
    # Not --quiet: MkDocs then counts no warnings, and --strict means nothing.
    command = [mkdocs, "build", "--strict"]
    done = subprocess.run(command, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write("".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO ")))
    if done.returncode == 0:
        print("the site is in build/docs/site: open build/docs/site/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
