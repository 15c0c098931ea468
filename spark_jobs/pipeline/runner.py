"""One run of a pipeline: Kafka, topics, input and job, kills if asked for, and the check of every result at the end."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from processes import JVM_FOR_A_MINUTE, ManagedProcess, ProcessFailedError

from pipeline import chaos
from pipeline.cluster import Cluster, OneNode, ThreeNodes
from pipeline.feeder import Feeder
from pipeline.history import History
from pipeline.job_process import IDLE, done_file, drain_file
from pipeline.model import Pipeline
from pipeline.progress import parse_line
from pipeline.records import Stage, Topic, differences
from pipeline.settings import RunResult, RunSettings
from pipeline.stall import StallWatch, account_of
from pipeline.systems import Systems
from pipeline.threads import WatchedThread

if TYPE_CHECKING:
    from pipeline.screen import Screen

MAIN = Path(__file__).resolve().parents[1] / "__main__.py"
JOB_START_TIMEOUT_S = 300.0  # the first start fetches jars
STAGE_TIMEOUT_S = 600.0
"""Of a stage, beside the time in which it is fed; one in which nothing moves is given up much sooner."""
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.25
RESTARTS_MAX = 15
KILLS_AFTER_FEEDING_S = 2.0
LIVE_AFTER_S = 20.0
"""A job that runs for so long counts as live even if it has neither finished a trigger nor found nothing to do."""


class Run:
    """A run, in the order in which its methods stand."""

    def __init__(self, pipeline: Pipeline, settings: RunSettings, screen: Screen) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._screen = screen
        self._history = History()
        self._input = pipeline.make_input(settings.seed, settings.size or pipeline.size)
        self._records = [record for records in self._input.values() for record in records]
        folder = settings.folder
        second: Cluster | None = None
        if pipeline.needs_second_cluster:
            second = _cluster(settings, settings.second_bootstrap_servers, 1, "second")
        cluster = _cluster(settings, settings.bootstrap_servers, settings.nodes, "broker")
        self._systems = Systems(cluster, second, folder / "job", settings.suffix, self._records, settings.seconds)
        self._ours = [one for one in (cluster, second) if one is not None and one.is_ours]
        self._databases = pipeline.make_databases(folder) if pipeline.database_names else None
        self._job: ManagedProcess | None = None
        self._lines_seen = 0
        self._running_since: float | None = None
        self._is_live = False
        self._live_before_s = 0.0
        self._schedule = chaos.Schedule((), time.monotonic())
        self._fed: Counter[str] = Counter()
        self._restarts = 0

    def execute(self) -> RunResult:
        """The whole run. Raises ProcessFailedError, TimeoutError or KafkaException when it cannot go on."""
        began = time.monotonic()
        try:
            self._start_systems()
            self._plan_kills()
            for stage in self._pipeline.stages:
                self._run_stage(stage)
            self._stop_job()
            self._revive_all()
            if self._schedule.left:
                self._screen.say(f"kills for which the job was done too soon: {len(self._schedule.left)}")
            self._screen.say("checking every result")
            results = self._pipeline.results(self._systems.outcome())
            expected = self._pipeline.expected(self._records)
            return RunResult(
                self._pipeline.name,
                self._settings,
                len(self._records),
                results,
                expected,
                self._history,
                time.monotonic() - began,
                differences(results, expected),
            )
        finally:
            self._screen.close()
            self._close()

    # Systems

    def _start_systems(self) -> None:
        systems = self._systems
        systems.folder.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        systems.cluster.start()
        if systems.second is not None:
            systems.second.start()
            systems.second.create_topics(self._real(self._pipeline.second_topics))
        if self._databases is not None:
            self._databases.start()
            systems.databases.update(self._databases.addresses)
        systems.cluster.create_topics(self._real(self._pipeline.topics))
        what = f"{systems.cluster.nodes} node(s)" if systems.cluster.is_ours else "not ours"
        self._screen.say(
            f"Kafka at {systems.cluster.bootstrap_servers} ({what}) after {(time.monotonic() - began) * 1000:.0f} ms, "
            f"topics {', '.join(map(systems.real_name, self._pipeline.topics))}"
        )
        self._pipeline.prepare(systems)
        self._history.note("start", "Kafka is ready, topics are created")

    def _real(self, topics: Mapping[str, Topic]) -> dict[str, Topic]:
        return {self._systems.real_name(name): topic for name, topic in topics.items()}

    def _plan_kills(self) -> None:
        if self._settings.chaos is None:
            return
        targets = [chaos.JOB]
        if self._ours:
            targets.append(chaos.BROKER)
        if self._databases is not None:
            targets.append(chaos.DATABASE)
        seconds = self._settings.seconds + KILLS_AFTER_FEEDING_S
        kills = chaos.plan(self._settings.chaos, targets, seconds, self._last_stage.is_batch)
        self._schedule = chaos.Schedule(kills, time.monotonic())

    @property
    def _last_stage(self) -> Stage:
        return list(self._pipeline.stages.values())[-1]

    # Stages

    def _run_stage(self, stage: str) -> None:
        layout = self._pipeline.stages[stage]
        self._screen.say(f"stage {stage}: {layout.title}")
        self._history.note("stage", f"{stage}: {layout.title}")
        records = self._input.get(stage, []) if self._pipeline.is_fed else []
        seconds = self._settings.seconds * len(records) / max(map(len, self._input.values()))
        feeder = Feeder(
            self._systems.cluster.bootstrap_servers,
            records,
            0 if layout.feed_first else seconds,
            self._systems.real_name,
        )
        beside = Beside(self._pipeline, self._systems, stage)
        batches_before = len(self._history.batches)
        if layout.feed_first:
            feeder.go.set()
            feeder.start()
            feeder.join()
            feeder.require_no_failure()
        if self._job is None:
            self._start_job()
        self._wait_until_running(stage)
        self._live_before_s = self._schedule.live_s
        if not layout.feed_first:
            feeder.start()
        beside.start()
        self._follow(stage, feeder, beside, len(records), batches_before)
        self._fed += feeder.acknowledged

    def _follow(self, stage: str, feeder: Feeder, beside: Beside, total: int, batches_before: int) -> None:
        """Look after everything until the stage is done, with the kills that come due."""
        folder = self._systems.folder
        layout = self._pipeline.stages[stage]
        last_streams = [one for one in self._pipeline.stages.values() if not one.is_batch][-1]
        deadline = time.monotonic() + self._settings.seconds + STAGE_TIMEOUT_S
        watch = StallWatch(time.monotonic(), self._settings.stall_s)
        started = 0
        while not done_file(folder, stage).exists() or feeder.is_alive() or beside.is_alive():
            time.sleep(POLL_INTERVAL_S)
            self._look(feeder, total)
            if len(self._history.batches) > batches_before or self._is_live or done_file(folder, stage).exists():
                feeder.go.set()
            where = f"stage {stage} ({feeder.count} of {total} records fed)"
            self._require_no_failure(where, feeder, beside)
            self._kill_what_is_due(in_last_batch=layout.is_batch and layout is self._last_stage)
            is_held = layout is last_streams and self._schedule.holds_streams
            if not feeder.is_alive() and not beside.is_alive() and not is_held:
                drain_file(folder, stage).touch()
            # A job that was killed gets further when it runs again; one that fails again and again does not.
            started = max(started, 2 * len(self._history.kills) + (self._running_since is not None))
            progress = (len(self._history.batches), feeder.count, beside.is_alive(), started)
            if watch.is_stalled((*progress, done_file(folder, stage).exists()), time.monotonic()):
                raise self._given_up(f"nothing has moved for {self._settings.stall_s:.0f} s in {where}")
            if time.monotonic() > deadline:
                raise self._given_up(f"{where} was not finished within {STAGE_TIMEOUT_S:.0f} s")
        self._require_no_failure(f"stage {stage}", feeder, beside)

    def _require_no_failure(self, where: str, *threads: WatchedThread) -> None:
        for thread in threads:
            if thread.failure is not None:
                raise self._given_up(f"the input of {where} failed: {thread.failure}") from thread.failure

    def _given_up(self, why: str) -> ProcessFailedError:
        brokers = {process: pids for one in self._ours for process, pids in one.running().items()}
        account = account_of(self._history, self._job, brokers, self._settings.folder)
        return ProcessFailedError(f"{why}\n{account}")

    def _look(self, feeder: Feeder | None, total: int) -> None:
        """Read the job's log, note where everything is, and start the job again if a kill of others has ended it."""
        assert self._job is not None
        lines = self._job.lines()
        for line in lines[self._lines_seen :]:
            if (batch := parse_line(line)) is not None:
                self._history.add_batch(batch)
                self._is_live = True
            elif line.startswith("running "):
                if self._running_since is None:
                    self._history.note("start", "the Spark job runs")
                self._running_since = time.monotonic()
            elif (
                line == IDLE and self._history.batches
            ):  # before the first trigger there is nothing to do, and no input
                self._is_live = True
            elif line.startswith("connector:"):
                self._screen.say(f"Spark: {line}")
        self._lines_seen = len(lines)
        now = time.monotonic()
        if self._running_since is not None and now - self._running_since > LIVE_AFTER_S:
            self._is_live = True
        self._schedule.look(now, self._is_live)
        fed = self._fed + (feeder.acknowledged if feeder is not None else Counter())
        self._history.add_sample({self._systems.real_name(topic): count for topic, count in fed.items()})
        if feeder is not None:
            if self._schedule.holds_streams:
                feeder.follow(self._schedule.live_s - self._live_before_s)
            else:
                feeder.reach = 1.0
            lags = {query: self._history.lag(self._history.samples[-1], query) for query in self._history.read_to}
            self._screen.show(total, feeder.count, lags)
        code = self._job.exit_code()
        if code not in (None, 0):
            self._job_has_ended(code)

    def _job_has_ended(self, code: int | None) -> None:
        """An undisturbed job must not fail. One that lost its broker may: whoever runs jobs starts them again."""
        assert self._job is not None
        if self._settings.chaos is None or not self._history.kills or self._restarts >= RESTARTS_MAX:
            self._job.require_running()
        self._restarts += 1
        self._history.note("end", f"the job has ended with code {code} and is started again")
        self._screen.say(f"the job has ended with code {code} after the kills; it is started again")
        self._start_job()

    # The job

    def _start_job(self) -> None:
        systems = self._systems
        options = {
            "--bootstrap-servers": systems.cluster.bootstrap_servers,
            "--second-bootstrap-servers": systems.second.bootstrap_servers if systems.second else "",
            "--folder": str(systems.folder),
            "--suffix": systems.suffix,
            "--ivy-dir": str(self._settings.ivy_dir),
            "--databases": json.dumps(systems.databases),
        }
        argv = [sys.executable, str(MAIN), "job", self._pipeline.name]
        argv += [f"{option}={value}" for option, value in options.items() if value]
        self._job = ManagedProcess("the Spark job", argv, self._settings.folder / "job.log", JVM_FOR_A_MINUTE)
        self._lines_seen = 0
        self._is_live = False
        self._running_since = None

    def _wait_until_running(self, stage: str) -> None:
        began = time.monotonic()
        assert self._job is not None
        while not any(line in (f"running {stage}", f"done {stage}") for line in self._job.lines()):
            self._look(None, 0)
            if done_file(self._systems.folder, stage).exists():
                break
            if time.monotonic() - began > JOB_START_TIMEOUT_S:
                raise self._job.failure(f"did not start within {JOB_START_TIMEOUT_S:.0f} s")
            time.sleep(POLL_INTERVAL_S)
        if time.monotonic() - began > 1:
            self._screen.say(f"Spark job runs after {time.monotonic() - began:.0f} s")

    def _stop_job(self) -> None:
        """Wait for the end of the job, which has finished its last stage."""
        assert self._job is not None
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self._job.exit_code() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        self._look(None, 0)
        self._job.kill()

    # Kills

    def _kill_what_is_due(self, in_last_batch: bool) -> None:
        while (kill := self._schedule.take_due(self._is_live, in_last_batch)) is not None:
            if kill.target == chaos.JOB:
                assert self._job is not None
                self._job.kill()
                self._say_killed("job", 0)
                self._start_job()
            elif kill.target == chaos.BROKER:
                which, choice = kill.choice % len(self._ours), kill.choice // len(self._ours)
                name = self._ours[which].kill(choice)
                self._say_killed(name, kill.down_s)
                time.sleep(kill.down_s)
                self._ours[which].revive()
                self._history.note("start", f"{name} is there again")
            elif self._databases is not None:
                name = self._databases.kill(kill.choice)
                self._say_killed(name, kill.down_s)
                time.sleep(kill.down_s)
                self._databases.revive()
                self._history.note("start", f"{name} is there again")

    def _say_killed(self, name: str, down_s: float) -> None:
        self._history.note("kill", f"{name} (away for {down_s:g} s)" if down_s else name)
        self._screen.say(f"kill -9: {name}; it is started again" + (f" in {down_s:g} s" if down_s else ""))

    def _revive_all(self) -> None:
        for cluster in self._ours:
            cluster.revive()
        if self._databases is not None:
            self._databases.revive()

    def _close(self) -> None:
        if self._job is not None:
            self._job.kill()
        systems = self._systems
        for cluster, topics in (
            (systems.cluster, self._pipeline.topics),
            (systems.second, self._pipeline.second_topics),
        ):
            if cluster is not None and not cluster.is_ours:
                cluster.delete_topics([systems.real_name(name) for name in topics])
            elif cluster is not None:
                cluster.close()
        if self._databases is not None:
            self._databases.close()


class Beside(WatchedThread):
    """The thread in which a pipeline does beside the feeding of a stage what is no record."""

    def __init__(self, pipeline: Pipeline, systems: Systems, stage: str) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._systems = systems
        self._stage = stage

    def work(self) -> None:
        """Let the pipeline do it; raises what the pipeline raises."""
        self._pipeline.accompany(self._systems, self._stage)


def _cluster(settings: RunSettings, bootstrap_servers: str | None, nodes: int, name: str) -> Cluster:
    if bootstrap_servers is not None:
        return Cluster(bootstrap_servers)
    if nodes == 1:
        return OneNode(settings.broker_command, settings.folder, name)
    return ThreeNodes(settings.broker_command, settings.folder)
