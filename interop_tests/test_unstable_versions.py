"""InitProducerId 6, which only `unstable.api.versions.enable` turns on: two-phase commits, allowed and refused."""

from __future__ import annotations

import struct
import time

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.conftest import StartBroker
from interop_tests.wire import API_VERSIONS, Connection, compact_string, request_header, string

pytestmark = [pytest.mark.own_broker, pytest.mark.area("transactions"), pytest.mark.client("raw frames")]

FIND_COORDINATOR, INIT_PRODUCER_ID = 10, 22
NONE, LOADING, NOT_AVAILABLE, CONCURRENT, UNSUPPORTED_VERSION = 0, 14, 15, 51, 35
INVALID_REQUEST, INVALID_TIMEOUT, REFUSED = 42, 50, 53
WAIT_S = 30.0


@pytest.fixture(scope="module", params=["true", "false"])
def broker(request: pytest.FixtureRequest, start_broker: StartBroker) -> tuple[BrokerProcess, bool]:
    """A broker that serves unstable versions, with and without two-phase commits."""
    settings = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": request.param}
    return start_broker(f"two-phase-{request.param}", settings), request.param == "true"


def highest_version(bootstrap: str) -> int:
    """The highest version of InitProducerId in ApiVersions 0."""
    with Connection(bootstrap) as connection:
        reply = connection.exchange(request_header(API_VERSIONS, 0))
    (count,) = struct.unpack_from(">i", reply, 6)
    entries = (struct.unpack_from(">hhh", reply, 10 + 6 * number) for number in range(count))
    return int(next(highest for key, _, highest in entries if key == INIT_PRODUCER_ID))


def init(bootstrap: str, transactional_id: str, timeout_ms: int, *, two_phase: bool, keep: bool) -> tuple[int, ...]:
    """Error code, epoch, and producer id and epoch of an ongoing transaction in the answer to InitProducerId 6."""
    body = compact_string(transactional_id) + struct.pack(">iqh??", timeout_ms, -1, -1, two_phase, keep) + b"\0"
    with Connection(bootstrap) as connection:
        reply = connection.exchange(request_header(INIT_PRODUCER_ID, 6, flexible=True) + body)
    # correlation id, tags, throttle time
    error, _, epoch, ongoing_id, ongoing_epoch = struct.unpack_from(">hqhqh", reply, 4 + 1 + 4)
    return error, epoch, ongoing_id, ongoing_epoch


def until_loaded(bootstrap: str) -> None:
    """Waits until the coordinator of the transactional id "ready" is there."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with Connection(bootstrap) as connection:
            connection.exchange(request_header(FIND_COORDINATOR, 1) + string("ready") + b"\1")
        error = init(bootstrap, "ready", 60_000, two_phase=False, keep=False)[0]
        if error not in (LOADING, NOT_AVAILABLE, CONCURRENT, 16):
            assert error == NONE
            return
        assert time.monotonic() < deadline, error
        time.sleep(0.1)


def test_two_phase_commits_that_a_broker_takes_and_refuses(broker: tuple[BrokerProcess, bool]) -> None:
    """P-440, P-441: the setting decides; a prepared transaction cannot be kept, and a timeout is not looked at."""
    process, has_two_phase = broker
    assert highest_version(process.bootstrap) == 6
    until_loaded(process.bootstrap)

    def answer(transactional_id: str, timeout_ms: int, *, two_phase: bool, keep: bool = False) -> tuple[int, ...]:
        return init(process.bootstrap, transactional_id, timeout_ms, two_phase=two_phase, keep=keep)

    nothing = (-1, -1, -1)
    assert answer("ready", 60_000, two_phase=False) == (NONE, 1, -1, -1)
    assert answer("ready", 0, two_phase=False) == (INVALID_TIMEOUT, *nothing)
    assert answer("ready", 0, two_phase=False, keep=True) == (UNSUPPORTED_VERSION, *nothing)
    assert answer("", 0, two_phase=True) == (INVALID_REQUEST, *nothing)
    if has_two_phase:
        assert answer("ready", 0, two_phase=True) == (NONE, 2, -1, -1)
        assert answer("ready", 0, two_phase=True, keep=True) == (UNSUPPORTED_VERSION, *nothing)
    else:
        assert answer("ready", 0, two_phase=True) == (REFUSED, *nothing)
        assert answer("ready", 0, two_phase=True, keep=True) == (REFUSED, *nothing)
