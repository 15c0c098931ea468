"""The command line of the simulation."""

from __future__ import annotations

import pytest

from tests.simulation import commands
from tests.simulation.scenario import Outcome

OUTCOME = Outcome("seed", "digest", 1, 1, 1.0, {})


@pytest.mark.parametrize(
    ("end", "last"), [(None, "5 passed, 0 failed"), (0.0, "1 passed, 0 failed, 4 not run for want of time")]
)
def test_seeds_for_which_there_is_no_time(
    end: float | None, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line counts them, so that fewer runs are never taken for all."""
    monkeypatch.setattr(commands, "_run", lambda seed: (seed, OUTCOME, 0.1))
    assert commands.many([str(number) for number in range(5)], 1, keep_going=False, end=end) == 0
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_minutes_begin_with_the_mutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI has a time limit, and mutations take minutes too."""
    clock = [1000.0]

    def mutations(*_arguments: object) -> int:
        clock[0] += 480
        return 0

    def many(_seeds: list[str], _jobs: int, *, keep_going: bool, end: float | None) -> int:
        assert end == 1000 + 30 * 60
        return 0

    monkeypatch.setattr(commands, "mutations", mutations)
    monkeypatch.setattr(commands, "many", many)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    assert commands.main(["--jobs", "1", "--seeds", "5", "--mutations", "--minutes", "30"]) == 0
