"""An archive of Spark's classes, with which a local Spark starts sooner (class data sharing of the JVM).

A third of the start of a Spark session, and of its first trigger, is loading and verifying some 15,000 classes. Since
version 13 Java can write them to a file once and map it later. The file (150 MB) is made for one Java and one Spark:
the JVM looks whether it fits, and goes on without it if not.

As a program it makes the file now, in a minute: `python spark_jobs/class_archive.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from session import MissingRequirementError, build_session, default_ivy_dir, java_version_text, say, spark_jars_dir

TIMEOUT_S = 300.0
JAVA_MIN = 13
OPTION = "--make-for"


def archive_of(folder: Path) -> Path | None:
    """Place of the file for the installed Java and Spark, in a folder; None for a Java that cannot have one.

    Raises MissingRequirementError without Java or Spark.
    """
    # The line of the VM, and another before all, depend on options of the environment; the file does not.
    java = "\n".join(re.findall(r'^.*(?:version "|Runtime Environment).*$', java_version_text(), re.MULTILINE))
    match = re.search(r'version "(\d+)', java)
    # The path becomes a word of a command line that Spark takes apart at spaces.
    if match is None or int(match[1]) < JAVA_MIN or " " in str(folder):
        return None
    jars = sorted((jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in spark_jars_dir().glob("*.jar"))
    key = hashlib.sha256(repr((java, str(spark_jars_dir()), jars)).encode()).hexdigest()[:16]
    return folder / f"spark-classes-{key}.jsa"


def java_options(folder: Path) -> list[str]:
    """Options of a JVM that is to use the file, if there is one. Raises MissingRequirementError as `archive_of`."""
    archive = archive_of(folder)
    if archive is None or not archive.exists():
        return []
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def make_archive(folder: Path) -> Path | None:
    """Make the file if it is not there: a Spark in a process of its own writes it when it ends. None if it cannot."""
    archive = archive_of(folder)
    if archive is None or archive.exists():
        return archive
    part = archive.with_suffix(f".{os.getpid()}.part")
    began = time.monotonic()
    say("Spark's classes are archived, once: later starts need a third less")
    try:
        # The JVM outlives the Python that started it, and holds the pipes until the file is written.
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), OPTION, str(part), "--ivy-dir", str(folder)],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            cwd=tempfile.gettempdir(),
        )
        if done.returncode or not part.exists():
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
            say(f"Spark's classes could not be archived, which costs time only: {said[-1]}")
            return None
        part.rename(archive)
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"Spark's classes could not be archived, which costs time only: {error}")
        return None
    finally:
        part.unlink(missing_ok=True)
    say(f"Spark's classes are archived after {time.monotonic() - began:.0f} s, in {archive}")
    return archive


def load_classes(archive: Path, ivy_dir: Path) -> None:
    """Run a stream with an aggregation, and let the JVM write its classes to a file when it ends."""
    from pyspark.sql import functions as f

    spark = build_session(
        "classes", ivy_dir=ivy_dir, java_options=[f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off"]
    )
    with tempfile.TemporaryDirectory(prefix="spark-classes-") as checkpoint:
        numbers = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
        counts = (
            numbers.withWatermark("timestamp", "1 minute")
            .groupBy(f.window("timestamp", "10 seconds"), (f.col("value") % 7).alias("seventh"))
            .agg(f.count("*").alias("count"), f.to_json(f.struct(f.max("value"))).alias("json"))
        )
        writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", checkpoint)
        query = writer.start()
        while query.isActive and not any(progress.numInputRows for progress in query.recentProgress):
            time.sleep(0.1)
        query.stop()
        if (failure := query.exception()) is not None:
            raise failure
    spark.stop()


def main() -> int:
    """Make the file; returns the exit code."""
    parser = argparse.ArgumentParser(description="An archive of Spark's classes, with which Spark starts sooner")
    parser.add_argument(OPTION, type=Path, metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument(
        "--ivy-dir", type=Path, default=default_ivy_dir(), help="the folder for it (default %(default)s)"
    )
    options = parser.parse_args()
    try:
        if options.make_for is not None:
            load_classes(options.make_for, options.ivy_dir)
            return 0
        return 0 if make_archive(options.ivy_dir) is not None else 1
    except MissingRequirementError as error:
        say(f"class_archive.py: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
