"""The links that make one import root of four folders, and what an installed copy consists of."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pykbroker

ROOT = Path(__file__).resolve().parents[2]
# These groups have a virtual environment each.
OWN_ENVIRONMENTS = ("docs", "pipelines", "plots", "profile", "release")
LINKED = ("protocol", "logstore", "controller")


@pytest.mark.parametrize("name", LINKED)
def test_the_links_are_links(name: str) -> None:
    link = ROOT / "pykbroker" / name
    assert link.is_symlink(), f"{link} must be a symbolic link (was this checked out where links are not supported?)"
    assert os.readlink(link) == f"../{name}"
    assert (ROOT / name / "__init__.py").is_file()


def test_the_version_is_the_same_everywhere() -> None:
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    assert project["version"] == pykbroker.__version__
    assert f"## {pykbroker.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the sdist, and the wheel from the sdist, as `pip install` of a published sdist would."""
    checkout = tmp_path_factory.mktemp("checkout") / "pykbroker"
    shutil.copytree(
        ROOT,
        checkout,
        symlinks=True,
        ignore=shutil.ignore_patterns(
            ".*", "__pycache__", "*.so", "*.egg-info", "build", "dist", "tests", "interop_tests", "spark_jobs",
            "artifacts", "reports",
        ),
    )  # fmt: skip
    built = tmp_path_factory.mktemp("built")
    build(checkout, "build_sdist", built)
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(built, filter="data")
    build(built / f"pykbroker-{pykbroker.__version__}", "build_wheel", built)
    [path] = built.glob("*.whl")
    return zipfile.ZipFile(path)


def build(folder: Path, hook: str, target: Path) -> None:
    # Uncompiled: the extension is tested where it is built, and takes half a minute.
    done = subprocess.run(
        [sys.executable, "-c", f"import setuptools.build_meta as b; b.{hook}({str(target)!r})"],
        cwd=folder,
        env=os.environ | {"PYKBROKER_COMPILE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_installed_copy_adds_one_name(wheel: zipfile.ZipFile) -> None:
    names = {name.partition("/")[0] for name in wheel.namelist()}
    assert names == {"pykbroker", f"pykbroker-{pykbroker.__version__}.dist-info"}


def test_the_wheel_has_every_module(wheel: zipfile.ZipFile) -> None:
    expected = {
        f"pykbroker/{path.relative_to(ROOT if folder != 'pykbroker' else ROOT / 'pykbroker').as_posix()}"
        for folder in ("pykbroker", *LINKED)
        for path in (ROOT / folder).rglob("*.py")
        if "__pycache__" not in path.parts
    }
    assert {name for name in wheel.namelist() if name.endswith(".py")} == expected


def test_the_wheel_has_types_license_and_command(wheel: zipfile.ZipFile) -> None:
    information = f"pykbroker-{pykbroker.__version__}.dist-info"
    assert "pykbroker/py.typed" in wheel.namelist()
    assert b"Apache License" in wheel.read(f"{information}/licenses/LICENSE")
    entry_points = wheel.read(f"{information}/entry_points.txt")
    assert b"pykbroker = pykbroker.cli:main" in entry_points
    assert b"[pytest11]\npykbroker = pykbroker.testing.pytest_plugin" in entry_points
    metadata = wheel.read(f"{information}/METADATA").decode()
    assert "Requires-Python: >=3.11" in metadata
    assert "# pykbroker" in metadata, "the README is the description"


def test_the_pins_meet_every_requirement() -> None:
    """`make setup` installs the checkout with --no-deps: what it, its extras and groups ask for must be pinned."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)
    wanted = [*declared["project"]["dependencies"]]
    groups = dict(declared["dependency-groups"])
    for group in OWN_ENVIRONMENTS:
        assert unmet(groups.pop(group), f"{group}.txt") == []
    extras = dict(declared["project"]["optional-dependencies"])
    # pip has to compile it, so `make setup` leaves it out.
    assert unmet(extras.pop("gssapi"), "gssapi.txt") == []
    for requirements in [*extras.values(), *groups.values()]:
        wanted += requirements
    assert unmet(wanted, "development.txt") == []


def unmet(requirements: list[str], file_name: str) -> list[str]:
    """The requirements that no pin of a file meets."""
    lines = (ROOT / "requirements" / file_name).read_text(encoding="utf-8").lower().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return [
        str(requirement)
        for requirement in map(Requirement, requirements)
        if not requirement.specifier.contains(pins.get(requirement.name.lower(), "0.dev0"))
    ]


def test_no_client_library_is_a_dependency() -> None:
    """A test suite that pins kafka-python 2 must be able to install this package beside it."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    names = {Requirement(text).name for text in project["dependencies"]}
    assert not names & {"kafka-python", "confluent-kafka", "aiokafka", "rich"}
    assert "kafka-python" in {Requirement(text).name for text in project["optional-dependencies"]["cli"]}


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_the_workflows_run_what_is_there(path: Path) -> None:
    """Their steps are targets of the Makefile and programs of this repository."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = re.findall(r"- run: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert commands
    for command in commands:
        program, *words = command.split()
        assert (program == "make" and set(words) <= targets) or os.access(ROOT / program, os.X_OK)
