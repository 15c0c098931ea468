"""Programs of languages/ in JavaScript, Go, Rust and Java, made ready to run: built once, with what they need.

Everything goes to .cache/languages, to a folder named by what it is made of (the files of the language's folder and the
version of its tools), so that a change of either makes a new one. Packages come from the registry that npm, go and
cargo are set up for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from interop_tests.java_tools import JAVA_FLAGS
from interop_tests.kafka_jars import CACHE, JAVA, flink_jars, framework_jars
from interop_tests.made_once import UnavailableError, made_once, output_of

SOURCES = Path(__file__).resolve().parent / "languages"
BUILDS = CACHE / "languages"
TIMEOUT_S = 900


def javascript_program(client: str) -> list[str]:
    """The command of a client's program for Node.js. Raises UnavailableError."""
    _require("node", "Node.js", "npm")
    folder = _built("javascript", ["node", "--version"], _install_javascript)
    return ["node", str(folder / f"{client}.js")]


def go_program(client: str) -> list[str]:
    """The command of a client's program in Go. Raises UnavailableError."""
    _require("go", "Go")
    folder = _built("go", ["go", "version"], lambda work: _run(["go", "build", "-o", "program", "."], work))
    return [str(folder / "program"), client]


def rust_program() -> list[str]:
    """The command of the program in Rust. Raises UnavailableError."""
    _require("cargo", "Rust")
    return [str(_built("rust", ["cargo", "--version"], _build_rust) / "program")]


def streams_program() -> list[str]:
    """The command of the applications of Kafka Streams. Raises UnavailableError."""
    return _java_program("streams", "Streams", framework_jars)


def flink_program() -> list[str]:
    """The command of the job of Flink. Raises UnavailableError."""
    # Flink's serializers look into Java's own classes.
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "util.concurrent")]
    return _java_program("flink", "Flink", flink_jars, *opened, "-Xmx512M")


def _java_program(language: str, main_class: str, fetch_jars: Callable[[], Path], *flags: str) -> list[str]:
    compiler = str(Path(JAVA).with_name("javac")) if os.path.dirname(JAVA) else "javac"
    _require(compiler, "Java's compiler (Debian: openjdk-17-jdk-headless)")
    jars = fetch_jars()
    arguments = ["-cp", f"{jars}/*", "-d", ".", f"{main_class}.java"]
    folder = _built(language, [compiler, "-version"], lambda work: _run([compiler, *arguments], work))
    return [JAVA, *JAVA_FLAGS, *flags, "-cp", f"{folder}{os.pathsep}{jars}/*", main_class]


def client_versions() -> dict[str, str]:
    """Pinned versions by the names that the tests call their clients, from the files that npm, go and cargo read.

    Empty without the folder languages/.
    """
    if not SOURCES.exists():
        return {}
    found: dict[str, str] = {}
    listed = json.loads((SOURCES / "javascript" / "package.json").read_text())["dependencies"]
    names = {"kafkajs": "kafkajs", "@platformatic/kafka": "Platformatic"}
    found |= {client: listed[name] for name, client in names.items()}
    modules = {"twmb/franz-go": "franz-go", "IBM/sarama": "sarama", "segmentio/kafka-go": "kafka-go"}
    modules["ThreeDotsLabs/watermill-kafka/v3"] = "watermill"
    go_mod = (SOURCES / "go" / "go.mod").read_text()
    for name, client in modules.items():
        if pin := re.search(rf"^\s*github\.com/{re.escape(name)} v(\S+)", go_mod, re.MULTILINE):
            found[client] = pin[1]
    if pin := re.search(r'rskafka = .*"=([0-9.]+)"', (SOURCES / "rust" / "Cargo.toml").read_text()):
        found["rskafka"] = pin[1]
    return found


def _install_javascript(work: Path) -> None:
    # No package here needs its install script.
    _run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], work)


def _build_rust(work: Path) -> None:
    # Dependencies are built once for all versions of the program.
    target = BUILDS / "rust-target"
    _run(["cargo", "build", "--quiet", "--target-dir", str(target)], work)
    shutil.copy(target / "debug" / "interop", work / "program")


def _require(tool: str, language: str, *others: str) -> None:
    for program in (tool, *others):
        if shutil.which(program) is None:
            raise UnavailableError(f"{language} is not installed: {program} is not on PATH")


def _built(language: str, version_command: list[str], build: Callable[[Path], object]) -> Path:
    """The folder of a language's programs, made by `build` in a copy of its sources if it is not there yet."""
    digest = hashlib.sha256(_run(version_command, SOURCES).encode())
    for path in sorted(path for path in (SOURCES / language).rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    folder = BUILDS / f"{language}-{digest.hexdigest()[:16]}"

    def build_copy(work: Path) -> None:
        shutil.copytree(SOURCES / language, work)
        build(work)

    return made_once(folder, build_copy, lock_name=language)


def _run(command: list[str], folder: Path) -> str:
    return output_of(command, TIMEOUT_S, folder, {"NO_COLOR": "1"})
