"""Fetches Apache Kafka's published jars: `python -m interop_tests.kafka_jars` prints the folder that holds them.

Needs Java and either Maven on PATH or PySpark in this Python: PySpark carries ivy, which resolves the same jars.
The folder is `.cache/kafka-VERSION` in the checkout; a marker file in it names every jar with its SHA-256, is
written last, and is checked on every use, so an interrupted or damaged download is made again. Several processes
may ask at once: one downloads, the others wait for it. A folder of jars that is already there can be named by the
environment variable PYKBROKER_KAFKA_LIBS instead; then nothing is fetched.

Kafka Streams, Connect's file connectors and MirrorMaker, which are much larger, have a folder of their own beside it
(`python -m interop_tests.kafka_jars --frameworks`), and so has Apache Flink with its Kafka connector. The `libs` folder
of a distribution of Kafka has all but Flink.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from interop_tests.made_once import UnavailableError, locked

KAFKA_VERSION = "4.3.1"
# kafka-tools has the command-line and performance tools, kafka_2.13 the broker. The logging binding must be the one for
# slf4j 1, which Kafka depends on: with log4j-slf4j2-impl nothing is logged at all.
LOGGING = (
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.2"),
    ("org.apache.logging.log4j", "log4j-core", "2.25.2"),
)
TOOLS = (
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    *LOGGING,
)
FRAMEWORKS = tuple(
    ("org.apache.kafka", name, KAFKA_VERSION)
    for name in ("kafka-streams", "connect-runtime", "connect-file", "connect-mirror")
)
FLINK_VERSION = "2.0.0"
FLINK = (
    ("org.apache.flink", "flink-connector-kafka", "4.0.1-2.0"),
    *(("org.apache.flink", name, FLINK_VERSION) for name in ("flink-clients", "flink-connector-base")),
)
ENVIRONMENT_VARIABLE = "PYKBROKER_KAFKA_LIBS"
MARKER = ".complete"
JAVA = os.path.join(os.environ["JAVA_HOME"], "bin", "java") if os.environ.get("JAVA_HOME") else "java"
"""The Java that everything here runs: JAVA_HOME's, as Spark does it, else the one on PATH."""
CHECKOUT = Path(__file__).resolve().parent.parent
CACHE = CHECKOUT / ".cache"


class JarsUnavailableError(UnavailableError):
    """The jars could not be fetched; the message says what is missing and what to do."""


Root = tuple[str, str, str]
"""Group, name and version of an artifact that is fetched with everything that it needs."""


def kafka_jars() -> Path:
    """The folder of jars of the broker and its tools, fetched first if it is not complete.

    Raises:
        JarsUnavailableError: they cannot be had.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    if named:
        folder = Path(named)
        if not any(folder.glob("kafka-clients-*.jar")):
            raise JarsUnavailableError(f"{ENVIRONMENT_VARIABLE} names {folder}, which holds no kafka-clients jar")
        return folder
    return _fetched(f"kafka-{KAFKA_VERSION}", TOOLS)


def framework_jars() -> Path:
    """The folder of jars of Kafka Streams, Connect and MirrorMaker with their connectors, as kafka_jars."""
    named = Path(os.environ.get(ENVIRONMENT_VARIABLE) or CACHE / "none")
    if all(any(named.glob(f"{name}-{KAFKA_VERSION}.jar")) for _, name, _ in FRAMEWORKS):
        return named
    return _fetched(f"kafka-frameworks-{KAFKA_VERSION}", (*FRAMEWORKS, *LOGGING))


def flink_jars() -> Path:
    """The folder of jars of Flink and its Kafka connector, which brings a client of its own, as kafka_jars."""
    return _fetched(f"flink-{FLINK_VERSION}", (*FLINK, *LOGGING))


def _fetched(name: str, roots: Sequence[Root]) -> Path:
    folder = CACHE / name
    if _is_complete(folder):
        return folder
    # One lock for all folders: Maven's local repository, and Ivy's, are not made for two at a time.
    with locked(CACHE / "jars.lock", "another process is fetching the jars; waiting for it"):
        if not _is_complete(folder):  # it may have been fetched while we waited
            _fetch(folder, roots)
    return folder


def _fetch(folder: Path, roots: Sequence[Root]) -> None:
    if shutil.which(JAVA) is None:
        raise JarsUnavailableError(
            f"{JAVA} was not found: install Java 17 or newer (on Debian: apt install openjdk-17-jre-headless)"
        )
    work = folder.with_name(folder.name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    started = time.monotonic()
    failures: list[str] = []
    for name, resolve in (("Maven", _resolve_with_maven), ("ivy", _resolve_with_ivy)):
        problem = resolve(work, roots)
        if problem is None:
            break
        failures.append(f"{name}: {problem}")
    else:
        raise JarsUnavailableError(f"The jars of {folder.name} could not be fetched.\n" + "\n".join(failures))
    jars = sorted(work.glob("*.jar"))
    (work / MARKER).write_text("".join(f"{_sha256(jar)}  {jar.name}\n" for jar in jars))
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)
    _say(f"{len(jars)} jars in {folder} after {time.monotonic() - started:.0f} s")


def _resolve_with_maven(work: Path, roots: Sequence[Root]) -> str | None:
    """None when it worked, else what went wrong."""
    if shutil.which("mvn") is None:
        return "mvn is not on PATH"
    project = work.with_suffix(".pom.xml")
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in roots
    )
    project.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>pykbroker</groupId><artifactId>kafka-jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
    _say(f"fetching {work.stem} with Maven")
    # A local repository of our own: one that other builds use may hold a pom without its jar.
    command = ["mvn", "-B", "-f", str(project), f"-Dmaven.repo.local={CACHE / 'm2'}", "dependency:copy-dependencies"]
    return _run_visibly([*command, "-DincludeScope=runtime", f"-DoutputDirectory={work}"], "Downloaded from")


def _resolve_with_ivy(work: Path, roots: Sequence[Root]) -> str | None:
    """None when it worked, else what went wrong."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        return "this Python has no pyspark, whose jars include ivy"
    ivy_jars = sorted(Path(pyspark.submodule_search_locations[0]).glob("jars/ivy-*.jar"))
    if not ivy_jars:
        return "this pyspark carries no jars/ivy-*.jar"
    settings = CACHE / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="central"/>'
        '<resolvers><ibiblio name="central" m2compatible="true"/></resolvers></ivysettings>\n'
    )
    module = work.with_suffix(".ivy.xml")
    dependencies = "".join(
        f'<dependency org="{group}" name="{name}" rev="{version}" conf="default->default"/>'
        for group, name, version in roots
    )
    module.write_text(
        '<ivy-module version="2.0"><info organisation="pykbroker" module="kafka-jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>\n"
    )
    _say(f"fetching {work.stem} with ivy, one by one: about 80 s")
    command = [JAVA, "-jar", str(ivy_jars[-1]), "-settings", str(settings), "-cache", str(CACHE / "ivy")]
    retrieve = ["-types", "jar", "bundle", "-retrieve", f"{work}/[artifact]-[revision](-[classifier]).[ext]"]
    return _run_visibly([*command, "-ivy", str(module), *retrieve], "downloading")


def _run_visibly(command: list[str], progress_mark: str) -> str | None:
    """Runs a command, shows one line per downloaded jar; None when it worked, else the end of what it printed."""
    lines: list[str] = []
    count = 0
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if progress_mark in line and ".jar" in line:
                count += 1
                jar = line.split(".jar", 1)[0].rsplit("/", 1)[-1]
                _say(f"  {count:3} {jar}.jar")
    if process.returncode != 0:
        return f"{command[0]} ended with code {process.returncode}\n" + "\n".join(lines[-15:])
    return None


def _is_complete(folder: Path) -> bool:
    marker = folder / MARKER
    if not marker.is_file():
        return False
    expected = [line.split("  ", 1) for line in marker.read_text().splitlines()]
    return bool(expected) and all(
        (folder / name).is_file() and _sha256(folder / name) == digest for digest, name in expected
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Prints the folder on standard output; progress and trouble go to standard error."""
    try:
        print(framework_jars() if "--frameworks" in arguments else kafka_jars())
    except JarsUnavailableError as trouble:
        _say(str(trouble))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
