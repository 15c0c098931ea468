"""A SparkSession that can read and write Kafka, whatever PySpark is installed.

The Kafka connector is no part of PySpark: Spark fetches it from Maven Central when the session starts. Its version
and Scala version must be exactly those of the installed Spark; this module reads both off PySpark's own jars, so that
no number stands anywhere else.

As a program it prints the coordinates, for use with a plain spark-submit, or fetches the jars ahead of time:

    spark-submit --packages "$(python spark_jobs/session.py)" my_job.py
    python spark_jobs/session.py --fetch
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
IVY_DIR_VARIABLE = "PYKBROKER_IVY_DIR"
IVY_SETTINGS = HERE / "ivysettings.xml"
LOG_SETTINGS = HERE / "log4j2.properties"
PROGRESS_INTERVAL_S = 3.0
# Spark's own 200 are for clusters: on one machine each trigger would touch 200 state stores.
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
PACKAGES = "spark.jars.packages"
# Spark writes the files of a checkpoint by Hadoop's FileContext. Without Hadoop's native library, which PySpark lacks,
# that runs `readlink` eight times and `chmod` twice for each file: 43 processes and a third of the processor time of a
# trigger with one aggregation. The other way renames as well, atomically in a local file system, without a `readlink`.
CHECKPOINT_FILES = "spark.sql.streaming.checkpointFileManagerClass"
STREAMING = "org.apache.spark.sql.execution.streaming"
# Spark 4 needs Java 17, Spark 3.5 is content with 8; by major version of Spark.
JAVA_NEEDED = {3: 8, 4: 17}


class MissingRequirementError(Exception):
    """Something that must be installed on this machine is not; the message says what and where to get it."""


def default_ivy_dir() -> Path:
    """The folder where connector jars are kept: $PYKBROKER_IVY_DIR, else .cache/ivy of this checkout."""
    named = os.environ.get(IVY_DIR_VARIABLE)
    return Path(named).absolute() if named else HERE.parent / ".cache" / "ivy"


def spark_jars_dir() -> Path:
    """The folder with the jars of the Spark that `import pyspark` would use. Raises MissingRequirementError."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home) / "jars"
    try:
        import pyspark
    except ImportError:
        raise MissingRequirementError("PySpark is not installed: pip install pyspark") from None
    return Path(pyspark.__file__).parent / "jars"


def spark_and_scala_version() -> tuple[str, str]:
    """Spark's version and its Scala binary version, for example ("4.0.0", "2.13"), off the name of its core jar.

    Raises MissingRequirementError if there is no such jar.
    """
    jars = spark_jars_dir()
    for jar in jars.glob("spark-core_*.jar"):
        match = re.fullmatch(r"spark-core_(\d+\.\d+)-(.+)\.jar", jar.name)
        if match:
            return match[2], match[1]
    raise MissingRequirementError(f"{jars} holds no spark-core jar: is this PySpark installed whole?")


def checkpoint_file_manager() -> str:
    """The class of the installed Spark that writes checkpoints by Hadoop's FileSystem; Spark 4.1 moved it."""
    spark, _ = spark_and_scala_version()
    major, minor = (int(number) for number in spark.split(".")[:2])
    package = STREAMING if (major, minor) < (4, 1) else f"{STREAMING}.checkpointing"
    return f"{package}.FileSystemBasedCheckpointFileManager"


def connector_coordinates() -> str:
    """Maven coordinates of the Kafka connector that belongs to the installed PySpark."""
    spark, scala = spark_and_scala_version()
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}"


def connector_settings(ivy_dir: Path | None = None, packages: Sequence[str] = ()) -> dict[str, str]:
    """The Spark settings that make Spark fetch the connector into our own folder, and only from Maven Central.

    Further `packages` are Maven coordinates, in which {spark} and {scala} stand for the installed versions.
    """
    spark, scala = spark_and_scala_version()
    more = [package.format(spark=spark, scala=scala) for package in packages]
    return {
        PACKAGES: ",".join([connector_coordinates(), *more]),
        "spark.jars.ivy": str(ivy_dir or default_ivy_dir()),
        "spark.jars.ivySettings": str(IVY_SETTINGS),
    }


def resolution_file(ivy_dir: Path, coordinates: str) -> Path:
    """The file that lists the jars to which Spark has resolved Maven coordinates, a path a line."""
    return ivy_dir / f"resolved-{hashlib.sha256(coordinates.encode()).hexdigest()[:16]}.txt"


def resolved_jars(ivy_dir: Path, coordinates: str) -> list[str]:
    """The jars of Maven coordinates that an earlier session has fetched; none unless all are still there."""
    try:
        jars = resolution_file(ivy_dir, coordinates).read_text().split("\n")
    except OSError:
        return []
    return jars if all(Path(jar).is_file() for jar in jars) else []


def remember_jars(ivy_dir: Path, coordinates: str, spark_jars: str) -> None:
    """Keep the jars that a session uses (its setting `spark.jars`), so that the next one need not resolve them.

    Nothing is kept if one of them does not lie in Ivy's folder: the session has jars of its own then.
    """
    jars = [jar.removeprefix("file:").replace("///", "/", 1) for jar in spark_jars.split(",") if jar]
    if jars and all(Path(jar).parent == ivy_dir / "jars" for jar in jars):
        whole = resolution_file(ivy_dir, coordinates).with_suffix(f".{os.getpid()}.new")
        whole.write_text("\n".join(jars))
        whole.replace(resolution_file(ivy_dir, coordinates))


@contextlib.contextmanager
def locked(ivy_dir: Path) -> Iterator[None]:
    """Lock Ivy's folder against other sessions: of two that download the same jar at once, one fails."""
    with (ivy_dir / "fetch.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"connector: another session is fetching jars into {ivy_dir}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java_version_text() -> str:
    """Output of `java -version`. Raises MissingRequirementError unless the installed Spark can use that Java."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    needed = JAVA_NEEDED.get(int(spark_and_scala_version()[0].split(".")[0]), 17)
    advice = f"Spark needs Java {max(needed, 17)} (for example the package openjdk-17-jre-headless, or adoptium.net)"
    if java is None or not os.access(java, os.X_OK):
        raise MissingRequirementError(f"java was not found{f' at {java}' if java else ' on PATH'}: {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    if match and int(match[1]) < needed:
        raise MissingRequirementError(f"{java} is Java {match[1]}: {advice}")
    return said


def require_java() -> None:
    """Raise MissingRequirementError unless a Java that the installed Spark can use is found."""
    java_version_text()


def _jar_sizes(ivy_dir: Path) -> Iterator[int]:
    for path in (ivy_dir / "cache").glob("*/*/*/*.jar*"):
        # A .part file may just have been renamed.
        with contextlib.suppress(OSError):
            yield path.stat().st_size


def connector_is_cached(ivy_dir: Path) -> bool:
    """True if the connector's jars were downloaded to this directory before (Spark puts them in jars/ at the end)."""
    group, module, version = connector_coordinates().split(":")
    return (ivy_dir / "jars" / f"{group}_{module}-{version}.jar").exists()


class DownloadProgress:
    """Says on stderr, every few seconds while it is open, how much of the connector has arrived."""

    def __init__(self, ivy_dir: Path) -> None:
        self._ivy_dir = ivy_dir
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._is_needed = not connector_is_cached(ivy_dir)
        self._said = ""

    def __enter__(self) -> Self:
        if self._is_needed:
            say(f"connector: fetching {connector_coordinates()} from Maven Central into {self._ivy_dir}")
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_needed:
            self._done.set()
            self._thread.join()
            self._report()

    def _watch(self) -> None:
        while not self._done.wait(PROGRESS_INTERVAL_S):
            self._report()

    def _report(self) -> None:
        modules = sum(1 for _ in (self._ivy_dir / "cache").glob("*/*/ivy-*.xml"))
        sizes = list(_jar_sizes(self._ivy_dir))
        text = f"connector: {modules} modules found, {len(sizes)} jars fetched, {sum(sizes) / 1e6:.1f} MB"
        if text != self._said:
            say(text)
        self._said = text


def say(text: str) -> None:
    """One plain line to the person who watches."""
    print(text, file=sys.stderr, flush=True)


def build_session(
    app_name: str,
    *,
    master: str = "local[2]",
    ivy_dir: Path | None = None,
    shuffle_partitions: int = 2,
    packages: Sequence[str] = (),
    more_settings: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> SparkSession:
    """Start (or get) a SparkSession with the Kafka connector.

    Under spark-submit the session exists already and was configured there: its settings win. Started as a plain Python
    program, the session is local, without web interface, and with errors only in the log. A local session has few
    shuffle partitions (a streaming query keeps the number its checkpoint was begun with). `packages` are fetched with
    the connector; `more_settings` win over those that are made here. `java_options` are for the driver's JVM.

    Raises MissingRequirementError when Java or PySpark is missing or too old.
    """
    from pyspark.sql import SparkSession

    # The jobs write times as text, and these must not depend on where the job runs.
    builder = SparkSession.builder.appName(app_name).config("spark.sql.session.timeZone", "UTC")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        session = builder.getOrCreate()
        settings_given = session.sparkContext.getConf()
        if str(session.sparkContext.master).startswith("local") and not settings_given.contains(SHUFFLE_PARTITIONS):
            session.conf.set(SHUFFLE_PARTITIONS, shuffle_partitions)
        return session
    require_java()
    ivy_dir = ivy_dir or default_ivy_dir()
    ivy_dir.mkdir(parents=True, exist_ok=True)
    connector = connector_settings(ivy_dir, packages)
    coordinates = connector[PACKAGES]
    is_local = master.startswith("local")
    # Ivy resolves them again at each start, without the network but not without reading all: a quarter of the
    # processor time that a session needs until it is there.
    jars = resolved_jars(ivy_dir, coordinates) if is_local else []
    with contextlib.ExitStack() as stack:
        if not jars:
            stack.enter_context(locked(ivy_dir))
            # Another session may have fetched them while this one waited.
            jars = resolved_jars(ivy_dir, coordinates) if is_local else []
        settings = ({"spark.jars": ",".join(jars)} if jars else connector) | {
            "spark.driver.extraJavaOptions": " ".join(
                [f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}", *java_options]
            ),
            SHUFFLE_PARTITIONS: str(shuffle_partitions),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        if is_local:
            # Nothing outside this machine talks to the driver; its own host name may not even resolve.
            settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
            settings |= {CHECKPOINT_FILES: checkpoint_file_manager()}
        for key, value in (settings | dict(more_settings or {})).items():
            builder = builder.config(key, value)
        with DownloadProgress(ivy_dir):
            session = builder.master(master).getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        if not jars and is_local:
            remember_jars(ivy_dir, coordinates, session.sparkContext.getConf().get("spark.jars") or "")
    return session


def add_session_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that every job here has for its session."""
    parser.add_argument("--master", default="local[2]", help="Spark master (default %(default)s); spark-submit's wins")
    parser.add_argument("--ivy-dir", type=Path, default=default_ivy_dir(), help="folder for the Kafka connector's jars")


def main() -> int:
    """Print the connector's coordinates; with --fetch, fetch its jars now."""
    parser = argparse.ArgumentParser(description="The Kafka connector that belongs to the installed PySpark")
    parser.add_argument("--fetch", action="store_true", help="fetch the jars now, by starting and stopping a session")
    parser.add_argument("--ivy-dir", type=Path, default=default_ivy_dir(), help="folder for the jars")
    arguments = parser.parse_args()
    try:
        print(connector_coordinates())
        if arguments.fetch:
            build_session("fetch-connector", ivy_dir=arguments.ivy_dir).stop()
    except MissingRequirementError as error:
        say(f"session.py: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
