"""A client in Rust: rskafka, which has records and partitions and leaves groups and transactions out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop_tests.language_programs import rust_program
from interop_tests.language_scenarios import Logins, Records, Restarts
from interop_tests.made_once import or_skip

pytestmark = [pytest.mark.area("records"), pytest.mark.client("rskafka")]


@pytest.fixture(scope="module")
def command() -> Callable[[str], list[str]]:
    """The program, built when it is not there yet."""
    built = or_skip(rust_program)
    return lambda _client: built


class TestRskafka(Records, Restarts, Logins):
    """influxdata/rskafka."""

    program = "rskafka"
    can_join = False
