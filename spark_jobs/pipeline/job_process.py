"""The process of a pipeline's job: a Spark session, and the queries of one stage after the other.

The runner starts it, and starts it again when it was killed; it goes on where it was. A stage goes on until there is a
file `drain-STAGE` in the folder. Then everything that is in the topics is processed, the queries are stopped, and
`done-STAGE` is written. Without a runner it runs the first stage until Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from class_archive import java_options
from queries import StopFlag, progress_since, require_no_failure
from session import build_session, default_ivy_dir

from pipeline.progress import batch_of
from pipeline.stall import print_stacks_on_signal
from pipeline.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.model import Pipeline

IMPORT_ROOT = Path(__file__).resolve().parents[1]
POLL_INTERVAL_S = 0.2
IDLE = "idle"
"""A line of the job's log: since its start all queries have looked for input and found none."""
WAITS = "Waiting for data to arrive"


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings of a job, from its command line."""

    bootstrap_servers: str
    folder: Path
    suffix: str = ""
    master: str = "local[2]"
    ivy_dir: Path | None = None
    second_bootstrap_servers: str = ""
    databases: dict[str, str] = field(default_factory=dict)


def drain_file(folder: Path, stage: str) -> Path:
    """The file that says that a stage gets no more input."""
    return folder / f"drain-{stage}"


def done_file(folder: Path, stage: str) -> Path:
    """The file that says that a stage is finished."""
    return folder / f"done-{stage}"


def run_job(pipeline: Pipeline, settings: JobSettings) -> None:
    """Run the stages that are not finished yet. Raises what made a query fail."""
    print_stacks_on_signal()
    stop = StopFlag()
    # Workers of Python functions must have the packages of this interpreter, and find the modules of the jobs.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(IMPORT_ROOT), os.environ.get("PYTHONPATH")]))
    spark = build_session(
        pipeline.name,
        java_options=java_options(settings.ivy_dir or default_ivy_dir()) if settings.master.startswith("local") else (),
        master=settings.master,
        ivy_dir=settings.ivy_dir,
        packages=pipeline.packages,
        more_settings=pipeline.spark_settings,
    )
    try:
        for stage in pipeline.stages:
            if done_file(settings.folder, stage).exists():
                continue
            streams = Streams(
                spark,
                settings.bootstrap_servers,
                settings.folder,
                settings.suffix,
                settings.second_bootstrap_servers,
                settings.databases,
            )
            run_stage(pipeline, stage, streams, stop)
            if stop.is_set:
                return
            done_file(settings.folder, stage).touch()
            print(f"done {stage}", flush=True)
    finally:
        spark.stop()


def run_stage(pipeline: Pipeline, stage: str, streams: Streams, stop: StopFlag) -> None:
    """Run one stage until it is drained or the job is told to stop."""
    print(f"running {stage}", flush=True)
    pipeline.start(streams, stage)
    reporter = ProgressReporter()
    draining: threading.Thread | None = None
    was_idle = False
    try:
        while streams.queries and not stop.is_set:
            reporter.report(streams.queries)
            require_no_failure_of(streams)
            if not was_idle and reporter.is_silent and all(waits_for_input(query) for query in streams.queries):
                was_idle = True
                print(IDLE, flush=True)
            if draining is None and drain_file(streams.folder, stage).exists():
                draining = threading.Thread(target=drain, args=(streams,), daemon=True)
                draining.start()
            elif draining is not None and not draining.is_alive():
                break
            time.sleep(POLL_INTERVAL_S)
        reporter.report(streams.queries)
        require_no_failure_of(streams)
    finally:
        for query in streams.queries:
            query.stop()


def waits_for_input(query: StreamingQuery) -> bool:
    """True for a query that has looked for input and found none."""
    status = query.status
    return bool(status["message"] == WAITS and not status["isTriggerActive"] and not status["isDataAvailable"])


def drain(streams: Streams) -> None:
    """Return when all that is in the topics is processed, triggers without records for the watermark included."""
    try:
        for worker in streams.workers:
            worker.finish()
        for query in streams.queries:
            query.processAllAvailable()
    except Exception as error:
        # The thread that watches raises it with its cause.
        print(f"draining ended: {type(error).__name__}", flush=True)


class ProgressReporter:
    """Prints a line for each trigger that a query has finished."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}
        self._seen: dict[str, str] = {}

    @property
    def is_silent(self) -> bool:
        """True if no query has finished a trigger yet."""
        return not self._said

    def report(self, queries: list[StreamingQuery]) -> None:
        """Print what is new. A trigger that found nothing is reported by Spark again and again, here once."""
        for query in queries:
            for fields in progress_since(query, self._seen.get(query.name)):
                self._seen[query.name] = fields["timestamp"]
                if fields["batchId"] > self._said.get(query.name, -1) and fields["durationMs"].get("addBatch"):
                    self._said[query.name] = fields["batchId"]
                    print(batch_of(fields, time.time()).to_line(), flush=True)


def require_no_failure_of(streams: Streams) -> None:
    """Raise what made one of the workers or queries of a stage end, if one has failed."""
    for worker in streams.workers:
        worker.require_no_failure()
    require_no_failure(streams.queries)
