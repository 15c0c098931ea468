"""The demo: a broker, a stock producer, a Spark streaming job, and a check that every count is right.

    python spark_jobs/demo.py                 # what `make demo` runs
    python spark_jobs/demo.py --kill          # kill -9 to job and broker in the middle: same counts
    python spark_jobs/demo.py --bootstrap-servers localhost:9092     # against any Kafka that runs already

Starts the broker on a free port, creates two topics, sends invented user activity (activity.py) while the job
(page_counts.py) counts it, reads the result topic with confluent-kafka and the Parquet files with Spark
(batch_read.py), and compares both with counts computed directly from the events. Exit code 0 when all agree, 1 when
not, 2 when something that is needed is missing.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from activity import LATE_MAX_S, Event, add_event_arguments, count_directly, make_events
from demo_screen import DemoScreen, print_counts
from pipeline.cluster import Cluster, OneNode
from processes import JVM_FOR_A_MINUTE, ManagedProcess, ProcessFailedError
from results import CountsReader, Key, differences, digest, end_offset, read_all
from session import MissingRequirementError, default_ivy_dir, require_java

HERE = Path(__file__).resolve().parent
PARTITIONS = 3
WATERMARK = timedelta(minutes=10)
HOPELESS_EVENTS = 200
JOB_START_TIMEOUT_S = 300.0  # the first start fetches 60 MB of jars
STOP_TIMEOUT_S = 60.0
KILL_AT_SHARE = 0.35
assert timedelta(seconds=LATE_MAX_S) < WATERMARK


class CheckFailedError(Exception):
    """The counts are not what they must be."""


class JobWatch:
    """Progress of the Spark job's two queries, read from the job's log."""

    def __init__(self, process: ManagedProcess) -> None:
        self.process = process
        self.is_running = False
        self.note = "starting"
        self.offset: dict[str, int] = {}
        self.watermark: dict[str, datetime] = {}

    def look(self) -> None:
        """Read its log. Raises ProcessFailedError if it has ended."""
        for line in self.process.lines():
            if line.startswith("connector:"):
                self.note = line
            elif line.startswith("running "):
                self.is_running = True
            elif line.startswith("progress "):
                fields = dict(field.split("=", 1) for field in line.split()[1:])
                self.offset[fields["query"]] = int(fields["offset"])
                self.watermark[fields["query"]] = datetime.fromisoformat(fields["watermark"])
        self.process.require_running()

    def has_reached(self, offset: int, watermark: datetime) -> bool:
        """True once both queries have read up to this offset and have at least this watermark."""
        return all(
            self.offset.get(query, -1) >= offset and query in self.watermark and self.watermark[query] >= watermark
            for query in ("live", "finished")
        )


class Demo:
    """One run of the demo, in the order in which its methods stand."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, screen: DemoScreen) -> None:
        self._arguments = arguments
        self._folder = folder
        self._screen = screen
        ours, theirs = shlex.split(arguments.broker_command), arguments.bootstrap_servers
        self.broker = Cluster(theirs) if theirs else OneNode(ours, folder)
        suffix = "" if self.broker.is_ours else f"-demo-{uuid.uuid4().hex[:8]}"
        self.topics = (f"activity{suffix}", f"page-counts{suffix}")
        self.events: list[Event] = make_events(arguments.seed, arguments.events, arguments.minutes)
        self.expected = count_directly(self.events)
        self.final_watermark = max(event.ts for event in self.events) - WATERMARK
        self._processes: list[ManagedProcess] = []
        self._was_killed = False

    def close(self) -> None:
        """End what still runs, whatever happened; topics made in a Kafka that is not ours are deleted."""
        for process in reversed(self._processes):
            process.kill()
        if not self.broker.is_ours:
            self._admin().delete_topics(list(self.topics))
        self.broker.close()

    def run(self) -> None:
        """The whole demo. Raises CheckFailedError or ProcessFailedError."""
        self._start_broker()
        self._create_topics()
        job = self._start_job()
        self._wait_until_running(job)
        reader = CountsReader(self.broker.bootstrap_servers, self.topics[1])
        try:
            job = self._follow_stream(job, reader)
            self._send_hopeless(job, reader)
        finally:
            reader.close()
        self._screen.say("stopping the job (SIGTERM)")
        job.process.stop(STOP_TIMEOUT_S)
        counts = self._check_topic()
        finished = self._check_parquet()
        if isinstance(self.broker, OneNode):
            self.broker.stop(STOP_TIMEOUT_S)
        self._screen.close()
        print_counts(counts, finished)
        print(
            f"check passed: {len(counts):,} counts in the topic and {len(finished):,} finished ones in Parquet are as "
            f"computed from the {self._arguments.events:,} events{self._kill_note()} (digest {digest(counts)})"
        )

    def _kill_note(self) -> str:
        return ", with kill -9 in the middle" if self._was_killed else ""

    def _admin(self) -> Any:
        from kafka.admin import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self.broker.bootstrap_servers)

    def _start_broker(self) -> None:
        if not self.broker.is_ours:
            self._screen.say(f"using the Kafka at {self.broker.bootstrap_servers}")
            return
        milliseconds = self._started_in_ms()
        self._screen.say(f"broker at {self.broker.bootstrap_servers} after {milliseconds:.0f} ms")

    def _started_in_ms(self) -> float:
        """Start the broker, the second time on its port with its data; returns the milliseconds until it answered."""
        began = time.monotonic()
        self.broker.start()
        return (time.monotonic() - began) * 1000

    def _create_topics(self) -> None:
        from kafka.admin import NewTopic

        admin = self._admin()
        compact = {"cleanup.policy": "compact"}  # the topic of counts is an upsert stream
        admin.create_topics(
            [
                NewTopic(self.topics[0], num_partitions=PARTITIONS, replication_factor=1),
                NewTopic(self.topics[1], num_partitions=PARTITIONS, replication_factor=1, topic_configs=compact),
            ]
        )
        admin.close()
        self._screen.say(f"topics {' and '.join(self.topics)} created, {PARTITIONS} partitions each")

    def _spawn(self, name: str, script: str, *arguments: str) -> ManagedProcess:
        argv = [sys.executable, str(HERE / script), *arguments]
        process = ManagedProcess(name, argv, self._folder / f"{Path(script).stem}.log", JVM_FOR_A_MINUTE)
        self._processes.append(process)
        return process

    def _start_job(self) -> JobWatch:
        process = self._spawn(
            "the Spark job",
            "page_counts.py",
            *("--bootstrap-servers", self.broker.bootstrap_servers),
            *("--input-topic", self.topics[0], "--output-topic", self.topics[1]),
            *("--parquet-dir", str(self._folder / "parquet"), "--checkpoint-dir", str(self._folder / "checkpoints")),
            *("--watermark", f"{WATERMARK.seconds} seconds", "--ivy-dir", str(self._arguments.ivy_dir)),
        )
        return JobWatch(process)

    def _wait_until_running(self, job: JobWatch) -> None:
        began = time.monotonic()
        note = ""
        while not job.is_running:
            job.look()
            if job.note != note:
                note = job.note
                self._screen.say(f"Spark: {note}")
            if time.monotonic() - began > JOB_START_TIMEOUT_S:
                raise job.process.failure(f"did not start within {JOB_START_TIMEOUT_S:.0f} s")
            time.sleep(0.2)
        self._screen.say(f"Spark job runs after {time.monotonic() - began:.0f} s")

    def _follow_stream(self, job: JobWatch, reader: CountsReader) -> JobWatch:
        """Send all events while the job counts them, with a kill in between if asked; returns when all are counted."""
        arguments = self._arguments
        event_options = ("--seed", "--events", "--minutes", "--seconds")
        values = (arguments.seed, arguments.events, arguments.minutes, arguments.seconds)
        producer = self._spawn(
            "the producer",
            "activity.py",
            *("--bootstrap-servers", self.broker.bootstrap_servers, "--topic", self.topics[0]),
            *(text for option, value in zip(event_options, values, strict=True) for text in (option, str(value))),
        )
        self._screen.start_bars(len(self.events), arguments.events)
        kill_at = KILL_AT_SHARE * len(self.events) if arguments.kill else float("inf")
        end: int | None = None
        while end is None or not job.has_reached(end, self.final_watermark):
            sent = self._look(job, reader, producer)
            if sent >= kill_at and reader.counts:
                kill_at = float("inf")
                job = self._kill_and_restart(job)
            if end is None and producer.exit_code() == 0:
                end = end_offset(self.broker.bootstrap_servers, self.topics[0])
        return job

    def _look(self, job: JobWatch, reader: CountsReader, producer: ManagedProcess) -> int:
        """Show where everything is; returns how many events are sent."""
        reader.poll(0.3)
        job.look()
        if producer.exit_code() not in (None, 0):
            producer.require_running()
        sent = max((int(line.split()[1]) for line in producer.lines() if line.startswith("sent ")), default=0)
        self._screen.update(sent, reader.events_counted(), reader.records)
        return sent

    def _kill_and_restart(self, job: JobWatch) -> JobWatch:
        self._was_killed = True
        job.process.kill()
        if not self.broker.is_ours:
            self._screen.say("kill -9: the Spark job (the broker is not ours to kill); starting it again")
            return self._start_job()
        self.broker.kill(0)
        self._screen.say("kill -9: the Spark job and the broker; starting both again, same port, same data")
        milliseconds = self._started_in_ms()
        self._screen.say(f"broker at {self.broker.bootstrap_servers} again after {milliseconds:.0f} ms")
        return self._start_job()

    def _send_hopeless(self, job: JobWatch, reader: CountsReader) -> None:
        """Send events that are an hour late: the watermark is past them, so that they must not count."""
        self._screen.say(f"sending {HOPELESS_EVENTS} events that are far too late: none may count")
        producer = self._spawn(
            "the late producer",
            "activity.py",
            *("--bootstrap-servers", self.broker.bootstrap_servers, "--topic", self.topics[0]),
            *("--seed", str(self._arguments.seed), "--hopeless", str(HOPELESS_EVENTS)),
        )
        while producer.exit_code() is None:
            reader.poll(0.1)
        if producer.exit_code() != 0:
            producer.require_running()
        end = end_offset(self.broker.bootstrap_servers, self.topics[0])
        while not job.has_reached(end, self.final_watermark):
            reader.poll(0.2)
            job.look()

    def _check_topic(self) -> dict[Key, dict[str, int]]:
        self._screen.say(f"reading {self.topics[1]} with confluent-kafka")
        reader = read_all(self.broker.bootstrap_servers, self.topics[1])
        self._require_equal("the topic", reader.counts, self.expected)
        return reader.counts

    def _check_parquet(self) -> dict[Key, dict[str, int]]:
        self._screen.say("reading the Parquet files and the topic with Spark")
        export = self._folder / "parquet.jsonl"
        process = self._spawn(
            "the batch read",
            "batch_read.py",
            *("--bootstrap-servers", self.broker.bootstrap_servers, "--topic", self.topics[1]),
            *("--parquet-dir", str(self._folder / "parquet"), "--export", str(export)),
            *("--ivy-dir", str(self._arguments.ivy_dir)),
        )
        while process.exit_code() is None:
            time.sleep(0.1)
        if process.exit_code() != 0:
            process.require_running()
        rows = [json.loads(line) for line in export.read_text().splitlines()]
        counts = {(row.pop("minute"), row.pop("page")): row for row in rows}
        if len(counts) != len(rows):
            raise CheckFailedError(f"Parquet holds {len(rows) - len(counts)} rows twice")
        last = (self.final_watermark - timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%MZ")
        finished = {key: row for key, row in self.expected.items() if key[0] <= last}
        self._require_equal("Parquet", counts, finished)
        return counts

    def _require_equal(self, where: str, got: dict[Key, dict[str, int]], expected: dict[Key, Counter[str]]) -> None:
        wrong = differences(got, expected)
        if wrong:
            shown = "\n".join(f"    {line}" for line in wrong[:10])
            raise CheckFailedError(f"{len(wrong)} of {len(expected)} counts in {where} are wrong:\n{shown}")
        self._screen.say(f"{where}: {len(got):,} counts, all as computed")


def parse_arguments() -> argparse.Namespace:
    """Command line of the demo."""
    parser = argparse.ArgumentParser(description="Kafka clients and a Spark streaming job on pykbroker, checked")
    parser.add_argument("--kill", action="store_true", help="kill -9 to the job and the broker in the middle")
    parser.add_argument("--bootstrap-servers", help="use this Kafka instead of starting pykbroker")
    default_command = f"{shlex.quote(sys.executable)} -m pykbroker"
    parser.add_argument(
        "--broker-command", default=default_command, help="how pykbroker is called (default %(default)s)"
    )
    parser.add_argument(
        "--work-dir", type=Path, help="folder for data and logs (default: a temporary one, removed at the end)"
    )
    parser.add_argument("--ivy-dir", type=Path, default=default_ivy_dir(), help="folder for the Kafka connector's jars")
    add_event_arguments(parser)
    arguments = parser.parse_args()
    if arguments.minutes < 12:
        parser.error(f"--minutes must be 12 or more: the watermark is {WATERMARK.seconds // 60} minutes behind")
    return arguments


def main() -> int:
    """Run the demo and clean up; keep the folder with the logs when it failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    try:
        require_java()
        import confluent_kafka  # noqa: F401
        import kafka  # noqa: F401
    except (MissingRequirementError, ImportError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    folder = arguments.work_dir or Path(tempfile.mkdtemp(prefix="pykbroker-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    code = 1
    screen = DemoScreen()
    demo = Demo(arguments, folder, screen)
    try:
        demo.run()
        code = 0
    except (CheckFailedError, ProcessFailedError, TimeoutError) as error:
        screen.close()
        print(f"check FAILED: {error}")
    except KeyboardInterrupt:
        screen.close()
        print("stopped")
        code = 130
    finally:
        screen.close()
        demo.close()
        if code == 0 and arguments.work_dir is None:
            shutil.rmtree(folder, ignore_errors=True)
        elif code != 0:
            print(f"logs and data are in {folder}")
    return code


if __name__ == "__main__":
    sys.exit(main())
