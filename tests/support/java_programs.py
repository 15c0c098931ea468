"""Small Java programs beside this file, which ask classes of Apache Kafka's jars."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from interop_tests.kafka_jars import JAVA
from tests.support.kafka_jars import kafka_libs


def ask(program: str, question: Any) -> Any:
    """Last line that a program prints for a question on its standard input; both are JSON.

    The test is skipped where the installed Java has no compiler for the program.
    """
    libs = kafka_libs()
    modules = subprocess.run([JAVA, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        pytest.skip("the Java that is installed cannot run a source file: it has no compiler")
    source = Path(__file__).parent / f"{program}.java"
    command = [JAVA, "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*", str(source)]
    result = subprocess.run(command, input=json.dumps(question), capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])
