"""The command line explains itself: each pipeline, and the options of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jobs
import pytest
from pipeline.command_line import main, settings_of
from pipeline.model import Pipeline
from pipeline.options import explained, parser, pipeline_named_in

SPARK_JOBS = Path(__file__).resolve().parents[2] / "spark_jobs"


@pytest.fixture(params=jobs.NAMES)
def pipeline(request: pytest.FixtureRequest) -> Pipeline:
    return jobs.load(request.param)


def test_a_pipeline_is_explained_by_its_help(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["run", pipeline.name, "--help"])
    said = capsys.readouterr().out
    assert explained(pipeline) in said
    assert (sys.modules[type(pipeline).__module__].__doc__ or "").partition("\n\n")[2].strip() in said
    assert f"{pipeline.size:,} for {pipeline.name}" in " ".join(said.split())
    assert all(stage.title in said for stage in pipeline.stages.values())
    assert all(topic in said for topic in pipeline.second_topics)


def test_help_without_a_name_lists_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "check", "job"):
        with pytest.raises(SystemExit, match="0"):
            main([command, "--help"])
        assert "pipelines: " + ", ".join(jobs.NAMES) in capsys.readouterr().out
    assert pipeline_named_in(["run", "--help"]) is None


def test_the_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[: len(jobs.NAMES)]] == list(jobs.NAMES)
    assert "--help" in said


def test_options_reach_the_settings_of_a_run() -> None:
    arguments = ["run", "logs", "--seed", "3", "--events", "400", "--stall-after", "20", "--seconds", "2"]
    settings = settings_of(parser().parse_args(arguments), 3)
    settings.folder.rmdir()
    assert (settings.seed, settings.size, settings.stall_s, settings.seconds, settings.chaos) == (3, 400, 20.0, 2.0, 3)


def test_an_unknown_pipeline_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "unknown"]) == 2
    assert "there are activity, metrics" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["rich", "jinja2", "confluent_kafka"])
def test_without_a_library_the_list_is_there_and_a_run_says_what_is_missing(module: str) -> None:
    program = f"""
import importlib.machinery
import sys
import types
for name in ("rich", "jinja2", "confluent_kafka"):
    # The others count as installed, whatever this environment has.
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
sys.modules[{module!r}] = None
sys.path.insert(0, {str(SPARK_JOBS)!r})
from pipeline.command_line import main
assert main(["list"]) == 0
sys.exit(main(["run", "activity"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"spark_jobs: {module} is not installed: pip install '")
