"""A run that stands still is noticed, and says at which place."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from pipeline.history import History
from pipeline.progress import Batch
from pipeline.stall import (
    FATAL_STACKS,
    StallWatch,
    account_of,
    ends_of_logs,
    stacks_of,
    state_of,
    threads_of_queries,
)
from processes import ManagedProcess

SPARK_JOBS = Path(__file__).resolve().parents[2] / "spark_jobs"
STANDING = f"""
import sys, threading, time
sys.path.insert(0, {str(SPARK_JOBS)!r})
from pipeline.stall import print_stacks_on_signal
print_stacks_on_signal()
def waits_without_end():
    time.sleep(600)
threading.Thread(target=waits_without_end, daemon=True).start()
print("running", flush=True)
time.sleep(600)
"""
BROKER = """
import time
def serves_nobody():
    print("running", flush=True)
    time.sleep(600)
serves_nobody()
"""
DUMP = """
"main" #1 prio=5
   java.lang.Thread.State: RUNNABLE

"stream execution thread for counts [id = 1]" #57 daemon
   java.lang.Thread.State: WAITING
	at org.example.Waits.here

"Executor task launch worker for task 1.0 in stage 7.0 (TID 16)" #151 daemon
   java.lang.Thread.State: WAITING
	at org.example.Producer.flush
	at org.apache.spark.executor.Executor$TaskRunner.run(Executor.scala:650)

"Executor task launch worker-0" #152 daemon
   java.lang.Thread.State: WAITING
	at org.example.Pool.idle

"VM Thread" os_prio=0
"""


def test_what_moves_now_and_then_is_not_stalled() -> None:
    watch = StallWatch(0.0, limit_s=150.0)
    assert not watch.is_stalled((0, 0), 150.0)
    assert not watch.is_stalled((0, 1), 250.0)
    assert not watch.is_stalled((0, 1), 400.0)
    assert watch.is_stalled((0, 1), 400.5)


def test_a_watch_counts_from_its_beginning() -> None:
    watch = StallWatch(1000.0, limit_s=10.0)
    assert not watch.is_stalled((0,), 1005.0)
    assert not watch.is_stalled((0,), 1015.0)
    assert watch.is_stalled((0,), 1015.5)


def test_the_stacks_of_a_process_that_stands_still(tmp_path: Path) -> None:
    process = ManagedProcess("the job", [sys.executable, "-c", STANDING], tmp_path / "job.log")
    try:
        deadline = time.monotonic() + 30
        while "running" not in process.lines():
            process.require_running()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stacks = "\n".join(stacks_of(process))
        assert "waits_without_end" in stacks
        assert process.exit_code() is None
        assert "waits_without_end" in "\n".join(ends_of_logs(tmp_path))
    finally:
        process.kill()
    assert stacks_of(process) == []


def test_of_a_thread_dump_the_queries_and_their_tasks_are_shown() -> None:
    shown = threads_of_queries(DUMP.split("\n"))
    assert shown[0].startswith('"stream execution thread for counts')
    assert [line.strip() for line in shown if "org.example" in line] == [
        "at org.example.Waits.here",
        "at org.example.Producer.flush",
    ]
    assert threads_of_queries([]) == []


def test_a_broker_that_is_stopped_says_where_it_stands(tmp_path: Path) -> None:
    broker = ManagedProcess("the broker", [sys.executable, "-c", BROKER], tmp_path / "broker.log", FATAL_STACKS)
    try:
        deadline = time.monotonic() + 30
        while "running" not in broker.lines():
            broker.require_running()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(broker.pid, signal.SIGSTOP)
        while state_of(broker.pid) != "stopped":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        account = account_of(History(), None, {broker: [broker.pid]}, tmp_path).splitlines()
    finally:
        broker.kill()
    begin = account.index(f"Of the broker (pid {broker.pid}: stopped) Python stands at:")
    assert any("in serves_nobody" in line for line in account[begin:])
    assert state_of(broker.pid) == "gone"


@pytest.mark.parametrize("count", [0, 3, 400])
def test_the_end_of_a_log(count: int, tmp_path: Path) -> None:
    (tmp_path / "broker.log").write_text("".join(f"line {number}\n" for number in range(count)))
    (tmp_path / "broker-data").mkdir()
    (tmp_path / "broker-data" / f"{0:020}.log").write_bytes(b"\x00records\xff")
    lines = ends_of_logs(tmp_path)
    assert lines[0] == f"The end of {tmp_path / 'broker.log'}:"
    assert lines[1:] == [f"    line {number}" for number in range(max(0, count - 20), count)]


def test_a_run_that_is_given_up_is_accounted_for(tmp_path: Path) -> None:
    history = History()
    history.add_batch(Batch("counts", 3, 0.0, 7, {"in": 7}, 1, None, 0))
    history.note("kill", "node 2 of 3")
    (tmp_path / "broker.log").write_text("no space left\n")
    account = account_of(history, None, {}, tmp_path).splitlines()
    assert account[0] == "Queries have read: counts {'in': 7}."
    assert "    0 s: node 2 of 3" in account
    assert account[-2:] == [f"The end of {tmp_path / 'broker.log'}:", "    no space left"]
