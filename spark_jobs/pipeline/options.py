"""The options of the command line, and the help that explains them and each pipeline."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jobs
from session import default_ivy_dir

from pipeline.model import Pipeline
from pipeline.stall import STALL_TIMEOUT_S

DESCRIPTION = """\
Complete Spark pipelines on Kafka. Each makes its own input, and every result is checked against what plain Python
computes from that input. Without --bootstrap-servers a pykbroker is started for the run."""
COMMANDS = """\
begin with:
  python -m spark_jobs list                           the pipelines
  python -m spark_jobs run NAME --help                what a pipeline does, and the options of a run
  python -m spark_jobs run NAME                       a run, with progress, check and report
  python -m spark_jobs check all --chaos --seeds 20   all of them, under kill -9

exit code: 0 all results are right, 1 one is not or a run failed, 2 wrong usage or something is missing here"""
SERVERS = "HOST:PORT[,...]"
EVENTS_MIN = 100
"""Of fewer, some pipelines have no result of each kind."""


class Parser(argparse.ArgumentParser):
    """A parser that says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        """End the program with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (--help explains all)\n")


def parser(about: Pipeline | None = None) -> argparse.ArgumentParser:
    """The options of all commands; the help of `run` and `job` explains the pipeline that it is about."""
    program = Parser(
        prog="python -m spark_jobs",
        description=DESCRIPTION,
        epilog=COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = program.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="the pipelines, a line each")
    run = _command(commands, "run", "run a pipeline once, with progress, check and report", about)
    run.add_argument("names", nargs=1, metavar="NAME", help="of a pipeline, as `list` has it")
    checking = _command(commands, "check", "run pipelines quietly, and compare the results of all runs")
    checking.add_argument("names", nargs="+", metavar="NAME", help="of pipelines, or `all`")
    _add_check_options(checking)
    for command in (run, checking):
        _add_run_options(command, about)
    _add_job_options(_command(commands, "job", "the Spark job of a pipeline alone, on topics that are there", about))
    return program


def at_least(number: Callable[[str], Any], least: float) -> Callable[[str], Any]:
    """A type of arguments: a number that is not less than `least`."""

    def read(text: str) -> Any:
        value = number(text)
        if not value >= least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    read.__name__ = number.__name__  # argparse names the type of an argument that is no number
    return read


def connection_strings(text: str) -> dict[str, str]:
    """A type of arguments: a JSON object of strings."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise argparse.ArgumentTypeError(f"{text} is no JSON object of connection strings by name")
    return found


def explained(pipeline: Pipeline) -> str:
    """A pipeline in some lines: what its module says of it, how its results are right, its topics and stages."""
    second = f", and of the second Kafka: {', '.join(pipeline.second_topics)}" if pipeline.second_topics else ""
    width = max(map(len, pipeline.stages))
    servers = ["PostgreSQL"] if pipeline.database_names else []
    needs = f"needs beside Spark: {', '.join([*pipeline.needs.values(), *servers])}"
    return "\n".join(
        [
            f"{pipeline.name}: {pipeline.summary}",
            "",
            *(inspect.getdoc(inspect.getmodule(pipeline)) or "").splitlines()[2:],
            "",
            f"exactly once: {pipeline.guarantee}",
            f"topics: {', '.join(pipeline.topics)}{second}",
            "stages, one after the other:",
            *(f"  {name:{width}}  {stage.title}" for name, stage in pipeline.stages.items()),
            *([needs] if pipeline.needs else []),
        ]
    )


def pipeline_named_in(arguments: Sequence[str]) -> Pipeline | None:
    """The first pipeline whose name is among the arguments; None if there is none."""
    return next((jobs.load(argument) for argument in arguments if argument in jobs.NAMES), None)


def _command(
    commands: argparse._SubParsersAction[Parser], name: str, does: str, about: Pipeline | None = None
) -> argparse.ArgumentParser:
    command: Parser = commands.add_parser(
        name,
        help=does,
        description=f"{does[0].upper()}{does[1:]}." + (f"\n\n{explained(about)}" if about else ""),
        epilog="pipelines: " + ", ".join(jobs.NAMES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return command


def _add_run_options(command: argparse.ArgumentParser, about: Pipeline | None) -> None:
    python = os.environ.get("PYKBROKER_PYTHON", sys.executable)
    events = f"{about.size:,} for {about.name}" if about else "as many as suit the pipeline"
    add = command.add_argument
    add("--bootstrap-servers", metavar=SERVERS, help="use this Kafka instead of starting pykbroker; it is not killed")
    add("--second-bootstrap-servers", metavar=SERVERS, help="use this as the other Kafka of a pipeline between two")
    nodes_help = "of the pykbroker that is started (default 1; in runs of `check` with --chaos 1 and 3 in turn)"
    add("--nodes", type=int, choices=(1, 3), help=nodes_help)
    default_command = f"{shlex.quote(python)} -m pykbroker"
    add("--broker-command", default=default_command, metavar="COMMAND", help="how pykbroker is called: %(default)s")
    add("--chaos", action="store_true", help="kill -9 to job, broker and databases at random moments")
    add("--seed", type=int, default=7, metavar="N", help="of the input, and of the kills (default %(default)s)")
    add("--chaos-seed", type=int, metavar="N", help="of the kills, if they are to have another one")
    add("--events", type=at_least(int, EVENTS_MIN), metavar="N", help=f"how many events are made (default: {events})")
    add(
        "--seconds",
        type=at_least(float, 0),
        default=10.0,
        metavar="S",
        help="over which they are sent (default %(default)s)",
    )
    stall = "give a run up in which nothing has moved for so many seconds, with stacks and logs (default %(default)s)"
    add("--stall-after", type=at_least(float, 1), default=STALL_TIMEOUT_S, metavar="S", help=stall)
    report = Path("reports/pipelines")
    add("--report-dir", type=Path, default=report, metavar="FOLDER", help="for the reports (default %(default)s)")
    add("--work-dir", type=Path, metavar="FOLDER", help="for data and logs (default: a temporary one)")
    _add_ivy_dir(command)


def _add_check_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    seeds = "with --chaos: how many runs of each pipeline, of the seeds from --chaos-seed on (default %(default)s)"
    add("--seeds", type=at_least(int, 1), default=1, metavar="N", help=seeds)
    at_once = "how many runs go on at once; a run takes half a core and 2 GB of memory (default %(default)s)"
    add("--at-once", type=at_least(int, 1), default=1, metavar="N", help=at_once)
    results = "add a line for each run to this file, and leave out what has passed by it: so a check is continued"
    add("--results", type=Path, metavar="FILE", help=results)
    add(
        "--minutes", type=at_least(float, 0), metavar="M", help="begin no run after so many minutes (default: no limit)"
    )


def _add_job_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("names", nargs=1, metavar="NAME", help="of a pipeline, as `list` has it")
    add("--bootstrap-servers", required=True, metavar=SERVERS, help="Kafka to talk to")
    add("--second-bootstrap-servers", default="", metavar=SERVERS, help="the other Kafka of a pipeline between two")
    add("--folder", type=Path, required=True, help="for checkpoints and files; the same again to go on where it was")
    add("--suffix", default="", help="is added to the names of the topics")
    add("--master", default="local[2]", help="Spark master (default %(default)s)")
    databases = "connection strings of a pipeline's databases by name, as a JSON object"
    add("--databases", type=connection_strings, default={}, metavar="JSON", help=databases)
    _add_ivy_dir(command)


def _add_ivy_dir(command: argparse.ArgumentParser) -> None:
    ivy_help = "for the jars that Spark fetches from Maven Central (default %(default)s)"
    command.add_argument("--ivy-dir", type=Path, default=default_ivy_dir(), metavar="FOLDER", help=ivy_help)
