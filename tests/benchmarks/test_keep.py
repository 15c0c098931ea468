"""Results that are kept, and what is compared with them."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import machine
from benchmarks.keep import RESULTS, compared, differences, keep, newest


def write_report(folder: Path, name: str) -> None:
    (folder / f"{name}.json").write_text('{"results": []}')
    (folder / f"{name}.md").write_text(f"# {name}\n\n| a |\n")


def test_what_is_there_is_kept_and_what_was_kept_before_is_gone(tmp_path: Path) -> None:
    target = tmp_path / "results" / "1.0"
    target.mkdir(parents=True)
    (target / "group.json").write_text("{}")
    write_report(tmp_path, "shapes")
    assert keep(tmp_path, target, "1.0", "One round.") == ["shapes"]
    assert sorted(path.name for path in target.iterdir()) == ["README.md", "shapes.json"]
    expected = "# Measured with pykbroker 1.0\n\nOne round.\n\n## shapes\n\n| a |\n"
    assert (target / "README.md").read_text() == expected


def test_without_reports_nothing_is_touched(tmp_path: Path) -> None:
    assert keep(tmp_path, tmp_path / "1.0", "1.0", "") == []
    assert not (tmp_path / "1.0").exists()


def test_the_newest_version_is_not_the_last_by_its_letters(tmp_path: Path) -> None:
    assert newest(tmp_path) is None
    for version in ("0.9.1", "0.10.0"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "README.md").touch()
    assert newest(tmp_path) == tmp_path / "0.10.0"


def test_only_what_both_have_is_compared() -> None:
    kept = [{"case": "a", "broker": "x", "rate": 10.0, "p50": None}, {"case": "b", "broker": "x", "rate": 1.0}]
    now = [{"case": "a", "broker": "x", "rate": 20.0, "p50": 3.0}, {"case": "a", "broker": "y", "rate": 1.0}]
    assert compared(kept, now) == [["a", "x", "rate", "10.0", "20.0", "2.00"]]


def test_another_machine_is_told() -> None:
    assert differences({"cores": 2, "when": 1}, {"cores": 4, "when": 2}) == ["cores: 2, now 4"]


def test_what_is_kept_names_no_folder_of_a_machine() -> None:
    for path in RESULTS.rglob("*.json"):
        content = json.loads(path.read_text())
        assert set(content["machine"]) == set(machine.description())
        assert "bench-" not in path.read_text(), "the name of a temporary folder"


def test_the_processor_and_the_file_system_are_read() -> None:
    assert machine.processor("processor : 0\nmodel name\t: Fast One @ 2 GHz\n") == "Fast One @ 2 GHz"
    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmpx xfs rw 0 0\n"
    assert machine.file_system(mounts, Path("/tmp/x")) == "tmpfs"
    assert machine.file_system(mounts, Path("/var")) == "ext4"


def test_the_version_of_kfake_is_that_of_its_modules() -> None:
    assert machine.kfake_version("require github.com/twmb/franz-go/pkg/kfake v0.1\n") == "v0.1"
    assert machine.kfake_version(machine.KFAKE_MODULES.read_text()).startswith("v")
