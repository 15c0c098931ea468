"""Requirements of a command, looked for before it begins: a Kafka that answers, topics, databases, folders.

Each function raises MissingPartError with one line that says what is missing, where it was looked for, and what to do.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.model import MissingPartError, Pipeline

KAFKA_TIMEOUT_S = 10.0
JOB_KAFKA_TIMEOUT_S = 45.0
"""A job is also started while a broker is away: whoever starts jobs again may do so at once."""
COMMAND_TIMEOUT_S = 60.0


def require_broker_command(command: Sequence[str]) -> None:
    """The command that starts pykbroker has to run."""
    advice = "pip install pykbroker, name its command by --broker-command, or a Kafka that runs by --bootstrap-servers"
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            [*command, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
            cwd=tempfile.gettempdir(),  # as the broker, which has not our folder either
        )
    except OSError as error:
        raise MissingPartError(f"`{shown}` cannot be started ({error.strerror}): {advice}") from None
    except subprocess.TimeoutExpired:
        raise MissingPartError(f"`{shown} --version` has not ended after {COMMAND_TIMEOUT_S:.0f} s: {advice}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise MissingPartError(f"`{shown}` does not run ({said[-1]}): {advice}")


def require_kafka(bootstrap_servers: str, option: str, timeout_s: float = KAFKA_TIMEOUT_S) -> set[str]:
    """A broker has to answer there; returns the names of all topics."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    reasons: list[str] = []
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "reconnect.backoff.max.ms": 500}
    try:
        admin = AdminClient(settings | {"error_cb": lambda error: reasons.append(error.str())})
        return set(admin.list_topics(timeout=timeout_s).topics)
    except KafkaException as exception:
        admin.poll(0)
        why = re.sub(r" \(after \d+ms in state \w+\)", "", reasons[0] if reasons else exception.args[0].str())
        where = f"at {bootstrap_servers} within {timeout_s:.0f} s ({why})"
        raise MissingPartError(f"no Kafka answers {where}: start one there, or correct {option}") from None


def require_topics(pipeline: Pipeline, bootstrap_servers: str, suffix: str, second_bootstrap_servers: str) -> None:
    """The topics of a job that runs alone have to be there: it does not know what they are to be like."""
    places = [(bootstrap_servers, "--bootstrap-servers", pipeline.topics)]
    if pipeline.needs_second_cluster:
        if not second_bootstrap_servers:
            raise MissingPartError(f"{pipeline.name} writes to another Kafka: name it by --second-bootstrap-servers")
        places.append((second_bootstrap_servers, "--second-bootstrap-servers", pipeline.second_topics))
    for servers, option, topics in places:
        there = require_kafka(servers, option, JOB_KAFKA_TIMEOUT_S)
        missing = {f"{name}{suffix}": topic for name, topic in topics.items() if f"{name}{suffix}" not in there}
        if missing:
            layouts = ", ".join(
                " ".join([name, f"({topic.partitions} partitions)", *(f"{k}={v}" for k, v in topic.config.items())])
                for name, topic in missing.items()
            )
            raise MissingPartError(
                f"the Kafka at {servers} lacks topics of {pipeline.name}: create {layouts}; or name others by --suffix"
            )


def require_databases(pipeline: Pipeline, databases: Mapping[str, str]) -> None:
    """A job that runs alone has to be told its databases."""
    missing = [name for name in pipeline.database_names if name not in databases]
    if missing:
        example = ", ".join(f'"{name}": "host=127.0.0.1 dbname={name} user=me"' for name in pipeline.database_names)
        raise MissingPartError(f"{pipeline.name} needs the database {missing[0]}: --databases '{{{example}}}'")


def require_folder(folder: Path, option: str) -> None:
    """A folder that can be written to, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MissingPartError(f"{option} {folder}: {error.strerror}: name another folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MissingPartError(f"{option} {folder} cannot be written to: name another folder")
