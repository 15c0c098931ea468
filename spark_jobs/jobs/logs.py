"""Log lines of services in four formats: errors per service, Parquet, and dead letters that are repaired and replayed.

    topic `log-lines` (text: access log, JSON, logfmt, syslog; some of it malformed)
      -> stages parse and parse-replayed, three queries
           -> topic `service-errors`, key "<minute> <service>", upserts: how many lines of level ERROR
           -> Parquet in the folder `parquet/lines`, partitioned by day and service, exactly-once by its sink
           -> topic `dead-letters`: the line as it was, with headers `reason` and `origin`, exactly-once by transactions
      -> stage replay, for each dead letter one of
           -> topic `log-lines`: what could be repaired, with a header `replayed-from`, to be parsed again
           -> topic `parked`: what could not, and what was replayed before

The watermark of the errors is two hours: the time in which dead letters may be replayed and still count.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pipeline.model import Pipeline
from pipeline.outcome import Outcome
from pipeline.parquet import read_rows
from pipeline.records import COMPACTED, Record, Results, Stage, Topic, last_per_key, rows_once
from pipeline.schemas import at, iso, ms
from pipeline.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SERVICES = ("cart", "payment", "search", "billing")
LEVELS = ("INFO", "INFO", "INFO", "WARN", "ERROR")
SEVERITIES = {"ERROR": 3, "WARN": 4, "INFO": 6}
MALFORMED_SHARE = 0.06
MINUTES = 40
NO_FORMAT, INCOMPLETE, BAD_TIME, BAD_LEVEL = (
    "no known format",
    "JSON is incomplete",
    "time is not ISO 8601",
    "unknown level",
)
REPLAYED = "replayed-from"
WATERMARK = "2 hours"
LINE_SCHEMA = "ts STRING, service STRING, level STRING, message STRING, _corrupt_record STRING"
ACCESS = r'^\S+ \S+ \S+ \[([^\]]+)\] "(\S+ \S+) [^"]*" (\d{3}) \d+$'
SYSLOG = r"^<(\d+)>1 (\S+) \S+ (\S+) \S+ - - (.*)$"
LOGFMT = r'^ts=(\S+) service=(\S+) level=(\S+) msg="([^"]*)"$'


class Logs(Pipeline):
    """The pipeline; see the module's text."""

    name = "logs"
    summary = (
        "log lines of four formats: errors per service, Parquet files, bad lines as dead letters, repaired and replayed"
    )
    guarantee = "errors by their keys, Parquet by the log of its sink, dead letters and replays by transactions"
    topics = {
        "log-lines": Topic(),
        "service-errors": Topic(config=COMPACTED),
        "dead-letters": Topic(partitions=1),
        "parked": Topic(partitions=1),
    }
    size = 5000
    needs = {"pyarrow": "pyarrow"}
    stages = {
        "parse": Stage("lines are parsed as they come"),
        "replay": Stage("dead letters are repaired and replayed, or parked"),
        "parse-replayed": Stage("what was replayed is parsed"),
    }

    def make_input(self, seed: int, size: int) -> dict[str, list[Record]]:
        rng = random.Random(seed)  # noqa: S311
        return {"parse": [_make_line(rng, number, MINUTES * 60 * number / size) for number in range(size)]}

    def expected(self, records: Sequence[Record]) -> Results:
        good = [record.fact for record in records if record.fact["reason"] in (None, BAD_TIME)]
        bad = [record for record in records if record.fact["reason"] is not None]
        errors = Counter(f"{line['ts'][:16]}Z {line['service']}" for line in good if line["level"] == "ERROR")
        columns = ("ts", "service", "level", "format")
        return {
            "errors": dict(errors),
            "parquet": {line["message"]: {name: line[name] for name in columns} for line in good},
            "dead letters": {_text(record): record.fact["reason"] for record in bad},
            "parked": {_text(record): record.fact["reason"] for record in bad if record.fact["reason"] != BAD_TIME},
            "replayed": {_text(record): BAD_TIME for record in bad if record.fact["reason"] == BAD_TIME},
        }

    def start(self, streams: Streams, stage: str) -> None:
        if stage == "replay":
            replay(streams)
            return
        start_errors(streams)
        lines = parsed(streams).where("reason IS NULL")
        day = lines.selectExpr("ts", "level", "format", "message", "service", "date_format(ts, 'yyyy-MM-dd') AS day")
        streams.parquet(day, "lines", "day", "service")
        start_dead_letters(streams)

    def results(self, outcome: Outcome) -> Results:
        dead = [(record, dict(record.headers)) for record in outcome.read("dead-letters")]
        parked = [(record, dict(record.headers)) for record in outcome.read("parked")]
        replayed = [record for record in outcome.read("log-lines") if REPLAYED in dict(record.headers)]
        origins = {f"dead-letters-{record.partition}-{record.offset}": record for record, _ in dead}
        errors = ((record.key, int(record.value or b"0")) for record in outcome.read("service-errors"))
        return {
            "errors": last_per_key(errors),
            "parquet": rows_once(
                (row["message"], {"ts": _utc(row["ts"])} | {name: row[name] for name in ("service", "level", "format")})
                for row in read_rows(outcome.folder / "parquet" / "lines")
            ),
            "dead letters": rows_once((_text(record), headers["reason"].decode()) for record, headers in dead),
            "parked": rows_once((_text(record), headers["reason"].decode()) for record, headers in parked),
            "replayed": rows_once(
                (_text(origins[dict(record.headers)[REPLAYED].decode()]), BAD_TIME) for record in replayed
            ),
        }


def parsed(streams: Streams) -> DataFrame:
    """The lines with their fields; `reason` says why a line is malformed, and is null for all others."""
    from pyspark.sql import functions as f

    lines = streams.read("log-lines", includeHeaders="true").withColumn("line", f.col("value").cast("string"))
    kind = (
        f.when(f.col("line").startswith("{"), "json")
        .when(f.col("line").startswith("<"), "syslog")
        .when(f.col("line").startswith("ts="), "logfmt")
        .when(f.col("line").rlike(ACCESS), "access")
    )
    whole = lines.withColumn("format", kind).withColumn("json", f.from_json("line", LINE_SCHEMA))
    severity = _group(SYSLOG, 1).try_cast("int") % 8
    status = _group(ACCESS, 3).try_cast("int")
    by_format = {
        "json": ("json.ts", "json.service", "json.level", "json.message"),
        "syslog": (
            _group(SYSLOG, 2),
            _group(SYSLOG, 3),
            f.when(severity <= 3, "ERROR").when(severity == 4, "WARN").otherwise("INFO"),
            _group(SYSLOG, 4),
        ),
        "logfmt": (_group(LOGFMT, 1), _group(LOGFMT, 2), f.upper(_group(LOGFMT, 3)), _group(LOGFMT, 4)),
        "access": (
            _group(ACCESS, 1),
            f.lit("web"),
            f.when(status >= 500, "ERROR").when(status >= 400, "WARN").otherwise("INFO"),
            _group(ACCESS, 2),
        ),
    }
    for number, name in enumerate(("ts_text", "service", "level", "message")):
        field = f.lit(None).cast("string")
        for form, columns in by_format.items():
            column = columns[number]
            field = f.when(f.col("format") == form, f.col(column) if isinstance(column, str) else column).otherwise(
                field
            )
        whole = whole.withColumn(name, field)
    time = f.when(
        f.col("format") == "access", f.try_to_timestamp("ts_text", f.lit("dd/MMM/yyyy:HH:mm:ss Z"))
    ).otherwise(f.try_to_timestamp("ts_text", f.lit("yyyy-MM-dd'T'HH:mm:ss.SSSX")))
    reason = (
        f.when(f.col("format").isNull(), NO_FORMAT)
        .when((f.col("format") == "json") & f.col("json._corrupt_record").isNotNull(), INCOMPLETE)
        .when(f.col("ts").isNull(), BAD_TIME)
        .when(~f.col("level").isin(*SEVERITIES), BAD_LEVEL)
    )
    return whole.withColumn("ts", time).withColumn("reason", reason)


def start_errors(streams: Streams) -> None:
    """Errors per minute and service, as upserts."""
    from pyspark.sql import functions as f

    errors = parsed(streams).where("reason IS NULL AND level = 'ERROR'").withWatermark("ts", WATERMARK)
    counts = errors.groupBy(f.window("ts", "1 minute"), "service").count()
    minute = f.date_format("window.start", "yyyy-MM-dd'T'HH:mm'Z'")
    rows = counts.select(f.concat_ws(" ", minute, "service").alias("key"), f.col("count").cast("string").alias("value"))
    streams.upsert(rows, "errors", "service-errors")


def start_dead_letters(streams: Streams) -> None:
    """Malformed lines as they were, with the reason and the place that they came from."""
    from pyspark.sql import functions as f

    origin = f.concat_ws("-", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    more = f.array(_header("reason", f.col("reason")), _header("origin", origin))
    bad = parsed(streams).where("reason IS NOT NULL")
    streams.append_once(bad.select("key", "value", _with(more).alias("headers")), "dead-letters", "dead-letters")


def replay(streams: Streams) -> None:
    """Each dead letter goes back to `log-lines`, repaired, or to `parked`."""
    from pyspark.sql import functions as f

    dead = streams.read("dead-letters", includeHeaders="true")
    line = f.col("value").cast("string")
    repaired = f.regexp_replace(line, r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d),(\d{3})", "$1T$2.$3Z")
    # A name stands once in a line's headers, but for what a replay has added.
    names = f.transform("headers", lambda header: header["key"])
    can_be_replayed = (repaired != line) & ~f.array_contains(names, REPLAYED)
    origin = f.concat(f.lit("dead-letters-"), f.concat_ws("-", f.col("partition"), f.col("offset")))
    rows = dead.select(
        "key",
        f.when(can_be_replayed, repaired.cast("binary")).otherwise(f.col("value")).alias("value"),
        f.when(can_be_replayed, f.array(_header(REPLAYED, origin))).otherwise(f.col("headers")).alias("headers"),
        f.when(can_be_replayed, streams.topic("log-lines")).otherwise(streams.topic("parked")).alias("topic"),
    )
    streams.append_once(rows, "replay", "parked")


def _group(pattern: str, number: int) -> Any:
    from pyspark.sql import functions as f

    return f.regexp_extract("line", pattern, number)


def _header(name: str, value: Any) -> Any:
    from pyspark.sql import functions as f

    return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))


def _with(more: Any) -> Any:
    from pyspark.sql import functions as f

    return f.concat(f.coalesce("headers", f.array().cast("array<struct<key:string,value:binary>>")), more)


def _utc(time: datetime) -> str:
    """A time of Parquet, which has no zone: Spark writes it in UTC."""
    return iso(time.replace(tzinfo=UTC))


def _text(record: Any) -> str:
    return str(record.value.decode())


def _make_line(rng: random.Random, number: int, seconds: float) -> Record:
    time = at(seconds)
    form = rng.choice(("access", "json", "logfmt", "syslog"))
    service = "web" if form == "access" else rng.choice(SERVICES)
    level = rng.choice(LEVELS)
    message = (
        f"GET /product/{rng.randrange(60)}?id={number}" if form == "access" else f"request {number} is {level.lower()}"
    )
    if form == "access":
        time = time.replace(microsecond=0)
    reason = None
    line = _format_line(form, time, service, level, message, rng)
    if rng.random() < MALFORMED_SHARE:
        line, form, reason = _damage(rng, line, form, time, service, level, message)
    fact = {"ts": iso(time), "service": service, "level": level, "format": form, "message": message, "reason": reason}
    return Record("log-lines", service.encode(), line.encode(), ms(time), fact=fact)


def _format_line(form: str, time: datetime, service: str, level: str, message: str, rng: random.Random) -> str:
    if form == "access":
        status = {"ERROR": 502, "WARN": 404, "INFO": 200}[level]
        return f'10.0.{rng.randrange(9)}.7 - - [{time:%d/%b/%Y:%H:%M:%S} +0000] "{message} HTTP/1.1" {status} 512'
    if form == "json":
        return json.dumps({"ts": iso(time), "service": service, "level": level, "message": message})
    if form == "logfmt":
        return f'ts={iso(time)} service={service} level={level.lower()} msg="{message}"'
    return f"<{16 * 8 + SEVERITIES[level]}>1 {iso(time)} host-{rng.randrange(9)} {service} 4711 - - {message}"


def _damage(
    rng: random.Random, line: str, form: str, time: datetime, service: str, level: str, message: str
) -> tuple[str, str, str]:
    """A malformed line with the format that it has or would have, and the reason."""
    reason = rng.choice((NO_FORMAT, INCOMPLETE, BAD_TIME, BAD_LEVEL))
    if reason == NO_FORMAT:
        return f"?? {line}", form, reason
    fields = {"ts": iso(time), "service": service, "level": level, "message": message}
    if reason == INCOMPLETE:
        return json.dumps(fields)[:-5], "json", reason
    if reason == BAD_TIME:
        fields["ts"] = iso(time).replace("T", " ").replace(".", ",").rstrip("Z")
    else:
        fields["level"] = f"LEVEL-{rng.randrange(9)}"
    return json.dumps(fields), "json", reason


PIPELINE = Logs()
