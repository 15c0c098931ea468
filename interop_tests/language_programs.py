"""Programs of languages/ in JavaScript, Go, Rust and Java, made ready to run: built once, with what they need.

Everything goes to .cache/languages, to a folder named by what it is made of (the files of the language's folder and the
version of its tools), so that a change of either makes a new one. Packages come from the registry that npm, go and
cargo are set up for.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from interop_tests.java_tools import JAVA_FLAGS
from interop_tests.kafka_jars import CACHE, JAVA, JarsUnavailableError, flink_jars, framework_jars

SOURCES = Path(__file__).resolve().parent / "languages"
BUILDS = CACHE / "languages"
TIMEOUT_S = 900


class ProgramUnavailableError(Exception):
    """A language is not installed, or its packages cannot be had; the message says which and why."""


def javascript_program(client: str) -> list[str]:
    """The command of a client's program for Node.js. Raises ProgramUnavailableError."""
    _require("node", "Node.js", "npm")
    folder = _built("javascript", ["node", "--version"], _install_javascript)
    return ["node", str(folder / f"{client}.js")]


def go_program(client: str) -> list[str]:
    """The command of a client's program in Go. Raises ProgramUnavailableError."""
    _require("go", "Go")
    folder = _built("go", ["go", "version"], lambda work: _run("Go", ["go", "build", "-o", "program", "."], work))
    return [str(folder / "program"), client]


def rust_program() -> list[str]:
    """The command of the program in Rust. Raises ProgramUnavailableError."""
    _require("cargo", "Rust")
    return [str(_built("rust", ["cargo", "--version"], _build_rust) / "program")]


def streams_program() -> list[str]:
    """The command of the applications of Kafka Streams. Raises ProgramUnavailableError."""
    return _java_program("streams", "Streams", framework_jars)


def flink_program() -> list[str]:
    """The command of the job of Flink. Raises ProgramUnavailableError."""
    # Flink's serializers look into Java's own classes.
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "util.concurrent")]
    return _java_program("flink", "Flink", flink_jars, *opened, "-Xmx512M")


def _java_program(language: str, main_class: str, fetch_jars: Callable[[], Path], *flags: str) -> list[str]:
    compiler = str(Path(JAVA).with_name("javac")) if os.path.dirname(JAVA) else "javac"
    _require(compiler, "Java's compiler (Debian: openjdk-17-jdk-headless)")
    try:
        jars = fetch_jars()
    except JarsUnavailableError as reason:
        raise ProgramUnavailableError(str(reason)) from None
    arguments = ["-cp", f"{jars}/*", "-d", ".", f"{main_class}.java"]
    folder = _built(language, [compiler, "-version"], lambda work: _run("Java", [compiler, *arguments], work))
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
    _run("npm", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], work)


def _build_rust(work: Path) -> None:
    # Dependencies are built once for all versions of the program.
    target = BUILDS / "rust-target"
    _run("Rust", ["cargo", "build", "--quiet", "--target-dir", str(target)], work)
    shutil.copy(target / "debug" / "interop", work / "program")


def _require(tool: str, language: str, *others: str) -> None:
    for program in (tool, *others):
        if shutil.which(program) is None:
            raise ProgramUnavailableError(f"{language} is not installed: {program} is not on PATH")


def _built(language: str, version_command: list[str], build: Callable[[Path], object]) -> Path:
    """The folder of a language's programs, made by `build` in a copy of its sources if it is not there yet."""
    digest = hashlib.sha256(_run(language, version_command, SOURCES).encode())
    for path in sorted(path for path in (SOURCES / language).rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    folder = BUILDS / f"{language}-{digest.hexdigest()[:16]}"
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / f"{language}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            work = folder.with_name(folder.name + ".part")
            shutil.rmtree(work, ignore_errors=True)
            shutil.copytree(SOURCES / language, work)
            build(work)
            work.rename(folder)
    return folder


def _run(language: str, command: list[str], folder: Path) -> str:
    """Output of a command. Raises ProgramUnavailableError with its last line."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProgramUnavailableError(f"{language}: {' '.join(command[:3])} did not end in {TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = [line for line in (done.stderr.strip() or done.stdout.strip() or "no message").splitlines() if line]
        told = next((line for line in said if "error" in line.lower()), said[-1])
        raise ProgramUnavailableError(f"{language}: {' '.join(command[:3])} failed: {told.strip()[:300]}")
    return done.stdout
