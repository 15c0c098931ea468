"""The command line of the pipelines.

    python -m spark_jobs list
    python -m spark_jobs run NAME [--chaos --seed N] [--bootstrap-servers host:port]
    python -m spark_jobs check NAME... | all [--chaos] [--seeds COUNT] [--at-once COUNT] [--results FILE]
    python -m spark_jobs job NAME --bootstrap-servers host:port --folder DIRECTORY

`run` is one run with progress, check and report. `check` runs quietly, undisturbed and then with --chaos once for each
seed (on one node and on three in turn), and compares each run's results with what was computed and with those of the
undisturbed run; it goes through all pipelines with one seed, then with the next. `job` is the Spark job alone, on
topics that are there, until Ctrl-C. Exit codes: 0 all results are right, 1 one is not, a run failed or was not begun,
2 wrong usage or something is missing on this machine.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import jobs
from class_archive import make_archive
from processes import ProcessFailedError
from session import MissingRequirementError, require_java

from pipeline import checks
from pipeline.model import MissingPartError, Pipeline, require_modules
from pipeline.options import parser, pipeline_named_in
from pipeline.report import repeat_command, verdict, write_report
from pipeline.requirements import (
    require_broker_command,
    require_databases,
    require_folder,
    require_kafka,
    require_topics,
)
from pipeline.runner import Run
from pipeline.settings import RunResult, RunSettings

if TYPE_CHECKING:
    from pipeline.screen import Screen

EXIT_WRONG, EXIT_MISSING, EXIT_INTERRUPTED = 1, 2, 130
SHOWN = 10
RUNS_FOR_AN_ARCHIVE = 6
"""From so many runs on an archive of Spark's classes pays, which takes a minute."""
CLIENTS = {"confluent_kafka": "confluent-kafka", "jinja2": "jinja2", "rich": "rich"}


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; returns the exit code."""
    options = parser(pipeline_named_in(arguments)).parse_args(arguments)
    if options.command == "list":
        return list_pipelines()
    names = list(jobs.NAMES) if options.names == ["all"] else options.names
    try:
        pipelines = [jobs.load(name) for name in names]
        require_modules(CLIENTS)
        require_java()
        if options.command == "job":
            require_parts_of_job(pipelines[0], options)
        else:
            require_parts_of_runs(pipelines, options)
    except KeyError as error:
        print(f"there is no pipeline {error}; there are {', '.join(jobs.NAMES)}", file=sys.stderr)
        return EXIT_MISSING
    except (MissingRequirementError, MissingPartError) as error:
        print(f"spark_jobs: {error}", file=sys.stderr)
        return EXIT_MISSING
    if options.command == "job":
        return run_job_alone(pipelines[0], options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run_once(pipelines[0], options) if options.command == "run" else check(pipelines, options)
    except KeyboardInterrupt:
        print("stopped")
        return EXIT_INTERRUPTED


def list_pipelines() -> int:
    """`list`."""
    width = max(map(len, jobs.NAMES))
    for name in jobs.NAMES:
        print(f"{name:{width}}  {jobs.load(name).summary}")
    print("\n`python -m spark_jobs run NAME --help` explains one, `python -m spark_jobs run NAME` runs it")
    return 0


def require_parts_of_runs(pipelines: Sequence[Pipeline], options: argparse.Namespace) -> None:
    """Raises MissingPartError unless `run` or `check` can begin."""
    for pipeline in pipelines:
        pipeline.require_parts()
    needs_second = any(pipeline.needs_second_cluster for pipeline in pipelines)
    servers = {"--bootstrap-servers": options.bootstrap_servers}
    if needs_second:
        servers["--second-bootstrap-servers"] = options.second_bootstrap_servers
    for option, address in servers.items():
        if address is not None:
            require_kafka(address, option)
    if None in servers.values():
        require_broker_command(shlex.split(options.broker_command))
    require_folder(options.report_dir, "--report-dir")
    if options.work_dir is not None:
        require_folder(options.work_dir, "--work-dir")
    if options.command == "check" and options.results is not None:
        require_folder(options.results.absolute().parent, "--results")


def require_parts_of_job(pipeline: Pipeline, options: argparse.Namespace) -> None:
    """Raises MissingPartError unless `job` can begin."""
    require_modules(pipeline.needs)
    require_folder(options.folder, "--folder")
    require_databases(pipeline, options.databases)
    require_topics(pipeline, options.bootstrap_servers, options.suffix, options.second_bootstrap_servers)
    pipeline.require_databases(options.databases)


def run_job_alone(pipeline: Pipeline, options: argparse.Namespace) -> int:
    """The process that has the Spark session."""
    from pipeline.job_process import JobSettings, run_job

    folder = options.folder.absolute()
    settings = JobSettings(
        options.bootstrap_servers,
        folder,
        options.suffix,
        options.master,
        options.ivy_dir,
        options.second_bootstrap_servers,
        options.databases,
    )
    run_job(pipeline, settings)
    return 0


def run_once(pipeline: Pipeline, options: argparse.Namespace) -> int:
    """`run`."""
    from pipeline.screen import Screen

    screen = Screen()
    result = attempt(pipeline, settings_of(options, first_kills(options) if options.chaos else None), screen)
    if result is None:
        return EXIT_WRONG
    print(f"report: {write_report(pipeline, result, options.report_dir)}")
    print_differences(result)
    note = f" with {len(result.history.kills)} kills" if options.chaos else ""
    print(f"{'check passed' if result.is_right else 'check FAILED'}: {verdict(result)}{note} (digest {result.digest})")
    return 0 if result.is_right else EXIT_WRONG


def check(pipelines: Sequence[Pipeline], options: argparse.Namespace) -> int:
    """`check`: the last line says how it went, as a test runner's does."""
    began = time.monotonic()
    by_name = {pipeline.name: pipeline for pipeline in pipelines}
    first = first_kills(options)
    seeds = range(first, first + options.seeds) if options.chaos else ()
    undisturbed, disturbed = checks.rounds(list(by_name), seeds)
    wanted = {run_of(name, options, seed): (name, seed) for name, seed in [*undisturbed, *disturbed]}
    earlier = checks.read_outcomes(options.results) if options.results else {}
    outcomes = {run: one for run, one in earlier.items() if run in wanted and one.passed}
    if outcomes:
        print(f"{len(outcomes)} of {len(wanted)} runs have passed before, by {options.results}")
    if len(wanted) - len(outcomes) >= RUNS_FOR_AN_ARCHIVE:
        make_archive(options.ivy_dir.absolute())
    digests = {one.pipeline: one.digest for one in outcomes.values() if one.kills_seed is None}

    def note(done: tuple[checks.Plan, RunResult | None]) -> None:
        (name, seed), result = done
        is_right = result is not None and result.is_right
        if result is not None:
            is_right = is_right and digests.setdefault(name, result.digest) == result.digest
        say_checked(by_name[name], seed, result, is_right)
        run = run_of(name, options, seed)
        outcomes[run] = outcome_of(name, seed, run, result, is_right)
        if options.results:
            checks.append_outcome(options.results, outcomes[run])
        if result is not None:
            write_report(by_name[name], result, options.report_dir)

    may_begin = checks.deadline(options.minutes)
    # The runs with kills are compared with the undisturbed ones, which are before them therefore.
    for plans in (undisturbed, disturbed):
        left = [(plan, options) for plan in plans if run_of(plan[0], options, plan[1]) not in outcomes]
        checks.carry_out(attempt_quietly, left, options.at_once, note, may_begin)
    runs_of = {name: [run for run, plan in wanted.items() if plan[0] == name] for name in by_name}
    print("\n".join(checks.table(runs_of, outcomes.values())))
    print(f"after {time.monotonic() - began:.0f} s, reports are in {options.report_dir}")
    passed = sum(one.passed for one in outcomes.values())
    failed, left_out = len(outcomes) - passed, len(wanted) - len(outcomes)
    print(f"{passed} passed, {failed} failed" + (f", {left_out} not begun" if left_out else ""), flush=True)
    return EXIT_WRONG if failed or left_out else 0


def attempt_quietly(task: tuple[checks.Plan, argparse.Namespace]) -> tuple[checks.Plan, RunResult | None]:
    """Make one run of `check`, in this process or in one of several."""
    from pipeline.screen import Screen

    (name, seed), options = task
    return task[0], attempt(jobs.load(name), settings_of(options, seed), Screen(quiet=True))


def run_of(name: str, options: argparse.Namespace, seed: int | None) -> tuple[str, str]:
    """The command and the Kafka by which a file of outcomes knows a run."""
    kafka = "pykbroker" if options.bootstrap_servers is None else "another"
    return repeat_command(name, settings_of(options, seed, Path())), kafka


def outcome_of(
    name: str, seed: int | None, run: tuple[str, str], result: RunResult | None, is_right: bool
) -> checks.Checked:
    """The line of a run in a file of outcomes."""
    command, kafka = run
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if result is None:
        return checks.Checked(name, seed, command, kafka, False, None, None, (), now)
    killed = [f"{moment.name} at {moment.at_s:.0f} s" for moment in result.history.kills]
    took_s = round(result.seconds, 1)
    return checks.Checked(name, seed, command, kafka, is_right, result.digest, took_s, killed, now)


def first_kills(options: argparse.Namespace) -> int:
    """The seed of the kills of the first run with kills."""
    seed: int = options.seed if options.chaos_seed is None else options.chaos_seed
    return seed


def say_checked(pipeline: Pipeline, seed: int | None, result: RunResult | None, is_right: bool) -> None:
    """A line for a run of `check`."""
    how = "undisturbed" if seed is None else f"chaos seed {seed}"
    head = f"{'ok    ' if is_right else 'FAILED'} {pipeline.name:12} {how:14}"
    if result is None:
        print(head, flush=True)
        return
    kills = ", ".join(f"{moment.name} at {moment.at_s:.0f} s" for moment in result.history.kills)
    said = f"killed: {kills}; " if kills else ""
    print(f"{head} {result.seconds:4.0f} s  {said}{verdict(result)} (digest {result.digest})", flush=True)
    print_differences(result)


def attempt(pipeline: Pipeline, settings: RunSettings, screen: Screen) -> RunResult | None:
    """Run once; None if the run failed, which is said. The folder is kept when something was not right."""
    from confluent_kafka import KafkaException

    result = None
    try:
        result = Run(pipeline, settings, screen).execute()
    except (ProcessFailedError, TimeoutError, KafkaException) as error:
        print(f"{pipeline.name} FAILED: {error}", flush=True)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(settings.folder, ignore_errors=True)
        raise
    if result is not None and result.is_right:
        shutil.rmtree(settings.folder, ignore_errors=True)
    else:
        repeat = repeat_command(pipeline.name, settings)
        print(f"logs and data are in {settings.folder}; to repeat it: {repeat}", flush=True)
    return result


def settings_of(options: argparse.Namespace, chaos_seed: int | None, folder: Path | None = None) -> RunSettings:
    """The settings of one run, which gets a new folder of its own if none is given."""
    parent = options.work_dir.absolute() if options.work_dir else None
    settings = RunSettings(
        folder=folder or Path(tempfile.mkdtemp(prefix="pipeline-", dir=parent)),
        broker_command=shlex.split(options.broker_command),
        ivy_dir=options.ivy_dir.absolute(),
        bootstrap_servers=options.bootstrap_servers,
        second_bootstrap_servers=options.second_bootstrap_servers,
        nodes=options.nodes or default_nodes(options, chaos_seed),
        seed=options.seed,
        size=options.events,
        seconds=options.seconds,
        chaos=chaos_seed,
        stall_s=options.stall_after,
    )
    if options.bootstrap_servers is None:
        return settings
    return replace(settings, suffix=f"-{uuid.uuid4().hex[:8]}")


def default_nodes(options: argparse.Namespace, chaos_seed: int | None) -> int:
    """One node, and in every second run of `check` with chaos three, of which one is killed at a time."""
    return 3 if options.command == "check" and chaos_seed is not None and chaos_seed % 2 else 1


def print_differences(result: RunResult) -> None:
    """The first rows that are wrong."""
    for difference in result.differences[:SHOWN]:
        print(f"    {difference}")
