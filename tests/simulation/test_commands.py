"""The command line of the simulation."""

from __future__ import annotations

import pytest

from tests.simulation import commands
from tests.simulation.scenario import Outcome

OUTCOME = Outcome("seed", "digest", 1, 1, 1.0, {})


@pytest.mark.parametrize(
    ("minutes", "last"), [(None, "5 passed, 0 failed"), (0.0, "1 passed, 0 failed, 4 not run within 0 min")]
)
def test_seeds_for_which_there_is_no_time(
    minutes: float | None, last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line counts them, so that fewer runs are never taken for all."""
    monkeypatch.setattr(commands, "_run", lambda seed: (seed, OUTCOME, 0.1))
    assert commands.many([str(number) for number in range(5)], 1, keep_going=False, minutes=minutes) == 0
    assert capsys.readouterr().out.splitlines()[-1] == last
