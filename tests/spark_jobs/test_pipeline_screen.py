"""Lines of a run on something that is no terminal."""

from __future__ import annotations

import time

import pytest
from demo_screen import DemoScreen
from pipeline.screen import Screen


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which the test sets."""
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


def test_progress_is_said_now_and_then(now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    for at_s in (100.0, 101.0, 104.5):
        now[0] = at_s
        screen.show(3000, int(at_s), {"counts": 1200})
    screen.close()
    assert capsys.readouterr().out.splitlines() == [
        "  0.0 s  fed 100 of 3,000; to read: counts 1,200",
        "  4.5 s  fed 104 of 3,000; to read: counts 1,200",
    ]


def test_a_quiet_screen_says_nothing(now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(quiet=True)
    screen.say("Kafka is ready")
    screen.show(3000, 10, {})
    screen.close()
    assert capsys.readouterr().out == ""


def test_the_screen_of_the_demo(now: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    screen = DemoScreen()
    screen.start_bars(1010, 1000)
    screen.update(500, 400, 70)
    screen.update(600, 500, 80)
    screen.close()
    assert capsys.readouterr().out.splitlines()[1:] == ["  0.0 s  sent 500 of 1,010, counted 400 of 1,000"]
