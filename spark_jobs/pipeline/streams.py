"""Spark's side of a pipeline: sources and sinks of Kafka with their checkpoints, so that a job names topics only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.schemas import Schema
from pipeline.threads import WatchedThread
from pipeline.transactional import TransactionalSink, rows_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIGGER = "500 milliseconds"
# So that a backlog, as after a crash, is not one long trigger; and a transaction's records go through the driver.
MAX_RECORDS_PER_TRIGGER = 2000
WORKER_PAUSE_S = 0.1


class Worker(WatchedThread):
    """A thread that calls a step again and again; the step returns True as long as it finds something to do."""

    def __init__(self, step: Callable[[], bool]) -> None:
        super().__init__()
        self._step = step
        self._is_last_round = False

    def work(self) -> None:
        """Call the step until `finish`, and then until there is nothing to do."""
        while True:
            is_last_round = self._is_last_round
            if not self._step():
                if is_last_round:
                    return
                time.sleep(WORKER_PAUSE_S)

    def finish(self) -> None:
        """Return when there is nothing more to do; raises what ended the work."""
        self._is_last_round = True
        self.join()
        self.require_no_failure()


class Streams:
    """Sources and sinks for the queries of one stage.

    Attributes:
        spark: the session.
        bootstrap_servers: of the Kafka with the pipeline's topics.
        second_bootstrap_servers: of the other Kafka, for a pipeline that needs one; else "".
        folder: for checkpoints and files.
        queries: the streaming queries that were started.
        workers: what else goes on in threads beside the queries.
        databases: connection strings of the databases, by name.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap_servers: str,
        folder: Path,
        suffix: str = "",
        second_bootstrap_servers: str = "",
        databases: Mapping[str, str] | None = None,
    ) -> None:
        self.spark = spark
        self.bootstrap_servers = bootstrap_servers
        self.second_bootstrap_servers = second_bootstrap_servers
        self.folder = folder
        self.queries: list[StreamingQuery] = []
        self.workers: list[Worker] = []
        self.databases = dict(databases or {})
        self._suffix = suffix

    def topic(self, name: str) -> str:
        """The real name of a topic of the pipeline."""
        return f"{name}{self._suffix}"

    # Sources

    def read(self, *topics: str, **options: str) -> DataFrame:
        """Stream of the records of topics from their beginning, with the columns of Spark's Kafka source."""
        ours = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(MAX_RECORDS_PER_TRIGGER)}
        records: DataFrame = self._kafka(self.spark.readStream, topics, ours | options).load()
        return records

    def read_batch(self, *topics: str, **options: str) -> DataFrame:
        """All records of topics as a batch, or those between the offsets or times that `options` name."""
        records: DataFrame = self._kafka(self.spark.read, topics, options).load()
        return records

    def _kafka(self, reader: Any, topics: tuple[str, ...], options: Mapping[str, str]) -> Any:
        reader = reader.format("kafka").option("kafka.bootstrap.servers", self.bootstrap_servers)
        # Records of open and aborted transactions are no input.
        reader = reader.option("kafka.isolation.level", "read_committed")
        if not options.keys() & {"assign", "subscribePattern"}:
            reader = reader.option("subscribe", ",".join(self.topic(name) for name in topics))
        return reader.options(**options)

    # Sinks

    def upsert(self, rows: DataFrame, query: str, topic: str | None = None, mode: str = "update") -> StreamingQuery:
        """Spark's own Kafka sink, at-least-once, for rows of which the last value per key counts.

        A trigger that runs again after a crash has the same input and state, so that it writes the same values again.
        Rows have `key` and `value`, and `topic` if none is given here.
        """
        writer = rows.writeStream.format("kafka").outputMode(mode)
        writer = writer.option("kafka.bootstrap.servers", self.bootstrap_servers)
        if topic is not None:
            writer = writer.option("topic", self.topic(topic))
        return self._start(writer, query)

    def upsert_batch(self, rows: DataFrame, topic: str | None = None) -> None:
        """The same for a batch: run again, it writes the same values again."""
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap_servers)
        if topic is not None:
            writer = writer.option("topic", self.topic(topic))
        writer.save()

    def append_once(
        self, rows: DataFrame, query: str, topic: str, prepare: Callable[[DataFrame], DataFrame] | None = None
    ) -> StreamingQuery:
        """Each row once, by a transaction for each trigger, to `topic` or to that of its own column `topic`.

        `prepare` makes the rows to write of those of a trigger, as a batch.
        """
        name = self.topic(topic)
        sink = TransactionalSink(self.bootstrap_servers, f"{name}-{query}", name)

        def write(batch: DataFrame, batch_id: int) -> None:
            given = rows_of(batch if prepare is None else prepare(batch))
            sink.write(lambda: ({"topic": name} | dict(row) for row in given()), batch_id)

        return self.each_batch(rows, query, write)

    def each_batch(self, rows: DataFrame, query: str, write: Callable[[DataFrame, int], None]) -> StreamingQuery:
        """Call `write` with each micro-batch and its number; it must bear being called twice with the same one."""
        return self._start(rows.writeStream.outputMode("append").foreachBatch(write), query)

    def parquet(self, rows: DataFrame, query: str, *partition_by: str) -> StreamingQuery:
        """Append to a folder of Parquet files, exactly-once: what counts is the list in its `_spark_metadata`."""
        writer = rows.writeStream.format("parquet").outputMode("append").partitionBy(*partition_by)
        return self._start(writer.option("path", str(self.folder / "parquet" / query)), query)

    def _start(self, writer: Any, query: str) -> StreamingQuery:
        writer = writer.queryName(query).option("checkpointLocation", str(self.folder / "checkpoints" / query))
        started: StreamingQuery = writer.trigger(processingTime=TRIGGER).start()
        self.queries.append(started)
        return started

    def work(self, step: Callable[[], bool]) -> None:
        """Call `step` again and again, in a thread; it returns True as long as it finds something to do."""
        worker = Worker(step)
        self.workers.append(worker)
        worker.start()

    # Batches that must say the same after a crash

    def remembered(self, name: str, compute: Callable[[], Any]) -> Any:
        """A value that JSON can hold, computed once and the same in every later start of the job."""
        path = self.folder / f"{name}.json"
        if not path.exists():
            whole = path.with_suffix(".new")
            whole.write_text(json.dumps(compute()))
            whole.rename(path)
        return json.loads(path.read_text())


def events(records: DataFrame, schema: Schema, *more: str) -> DataFrame:
    """The JSON events of Kafka records, with further columns of the record beside; what is no event is left out."""
    from pyspark.sql import functions as f

    event = f.from_json(f.col("value").cast("string"), schema.ddl).alias("event")
    return records.select(event, *more).where("event.ts IS NOT NULL").select("event.*", *more)


def time_text(column: Any) -> Column:
    """A time as the events have it: 2026-01-05T12:00:03.780Z."""
    from pyspark.sql import functions as f

    return f.date_format(column, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def as_json(*columns: Any) -> Column:
    """The columns as one JSON object."""
    from pyspark.sql import functions as f

    return f.to_json(f.struct(*columns))
