"""Data from the published Apache Kafka jars. The Makefile fetches the jars and sets PYKBROKER_KAFKA_LIBS."""

from __future__ import annotations

import json
import os
import re
import zipfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

KAFKA_VERSION = "4.3.1"


def kafka_libs() -> Path:
    """The folder of jars; skips the test when there is none."""
    folder = os.environ.get("PYKBROKER_KAFKA_LIBS")
    if not folder or not Path(folder).is_dir():
        pytest.skip("PYKBROKER_KAFKA_LIBS does not name a folder with the Apache Kafka jars (`make test` fetches them)")
    return Path(folder)


@lru_cache
def definitions(jar: str) -> dict[str, dict[str, Any]]:
    """The JSON message definitions in a jar, by message name; ``jar`` is a name such as ``kafka-clients``."""
    found = {}
    with zipfile.ZipFile(kafka_libs() / f"{jar}-{KAFKA_VERSION}.jar") as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                definition = json.loads(text)
                found[definition["name"]] = definition
    return found
