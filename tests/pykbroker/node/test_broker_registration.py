"""Registration of a broker: what it does with the responses of controllers."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from pykbroker.config.broker_config import BrokerConfig
from pykbroker.controller.metadata.commands import CommandRefused
from pykbroker.controller.metadata.image import ClusterImage
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import StorageError
from pykbroker.node import broker_registration
from pykbroker.node.broker_registration import (
    AMEND_PAUSE_S,
    NO_QUORUM_TIMEOUT_S,
    STARTING_PAUSE_S,
    Registration,
    State,
    register_again,
    register_at_once,
    report_cordoned_directories,
)
from pykbroker.node.controller_registration import ControllerRegistration
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pykbroker.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from pykbroker.protocol.messages.controller_registration import ControllerRegistrationResponse
from tests.support.replicas import broker_image

OF_NEWER_SOFTWARE = 9999


class Channel:
    """Answers requests with prepared responses, and the last one for ever."""

    def __init__(self, *responses: Any) -> None:
        self._responses: Iterator[Any] = iter(responses)
        self.requests: list[Any] = []
        self._last: Any = None

    async def request(self, request: Any, timeout_ms: int) -> Any:
        await trio.lowlevel.checkpoint()
        self.requests.append(request)
        self._last = next(self._responses, self._last)
        return self._last


class OneDirectory:
    """A log directory that is online and not cordoned."""

    def online_directory_ids(self) -> list[bytes]:
        return [bytes(15) + b"\x80"]

    def offline_directory_ids(self) -> list[bytes]:
        return []

    def cordoned_directory_ids(self) -> list[bytes]:
        return []


def registration(channel: Channel) -> Registration:
    return Registration(
        BrokerConfig.from_properties({"log.dirs": "/data"}),
        [],
        cast("Any", SimpleNamespace(cluster_id="AAAAAAAAAAAAAAAAAAAAAA")),
        OneDirectory(),
        cast("Any", SimpleNamespace(image=ClusterImage())),
        cast("Any", channel),
        cast("Any", SimpleNamespace(random=random.Random(1))),
        -1,
        lambda: False,
    )


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, OF_NEWER_SOFTWARE])
async def test_an_error_is_followed_by_another_attempt_also_one_of_newer_software(code: int) -> None:
    channel = Channel(
        BrokerRegistrationResponse(error_code=code),
        BrokerRegistrationResponse(broker_epoch=7),
        BrokerHeartbeatResponse(error_code=code),
        BrokerHeartbeatResponse(is_caught_up=True),
    )
    tested = registration(channel)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tested.run)
        with trio.fail_after(5):
            await tested.caught_up()
        nursery.cancel_scope.cancel()
    assert tested.broker_epoch == 7


async def test_an_unknown_code_is_told_as_an_unknown_error() -> None:
    with pytest.raises(KafkaError) as refused:
        await registration(Channel(BrokerHeartbeatResponse(error_code=OF_NEWER_SOFTWARE)))._send_heartbeat()
    assert refused.value.error_code is ErrorCode.UNKNOWN_SERVER_ERROR


def running(channel: Channel, *, is_quorum_gone: bool = False) -> Registration:
    """A broker that serves, and is about to stop."""
    tested = registration(channel)
    tested.state = State.RUNNING
    node_id = tested._config.node_id
    tested._controller.image.brokers = {node_id: broker_image(node_id, 10)}
    tested._is_quorum_gone = lambda: is_quorum_gone
    return tested


async def test_a_broker_that_does_not_serve_stops_at_once() -> None:
    tested = registration(Channel(BrokerHeartbeatResponse()))
    await tested.leave()
    assert trio.current_time() == 0
    assert tested.state is State.STARTING


@pytest.mark.parametrize(
    ("is_quorum_gone", "words"),
    [(True, "too few controllers answer to elect one"), (False, "which did not come in time")],
)
async def test_without_a_controller_a_broker_stops_after_a_while(
    is_quorum_gone: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The last nodes of a cluster that stops as a whole have nobody to permit it."""
    caplog.set_level(logging.INFO)
    await running(Channel(), is_quorum_gone=is_quorum_gone).leave()
    assert words in caplog.text
    config = BrokerConfig.from_properties({})
    silence_s = (2 * config.quorum.election_timeout_ms + config.quorum.fetch_timeout_ms) / 1000
    expected = NO_QUORUM_TIMEOUT_S if is_quorum_gone else silence_s
    assert expected <= trio.current_time() <= expected + 1


async def test_a_broker_that_is_ready_and_still_fenced_asks_again_soon() -> None:
    tested = registration(Channel(BrokerHeartbeatResponse(is_fenced=True)))
    tested.state = State.RECOVERY
    interval_s = BrokerConfig.from_properties({}).broker.heartbeat_interval_ms / 1000
    assert await tested._send_heartbeat() == interval_s
    tested._is_ready = True
    assert await tested._send_heartbeat() == STARTING_PAUSE_S < interval_s
    assert tested.state is State.RECOVERY


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
@pytest.mark.parametrize("owner", ["nobody", "itself", "another"])
async def test_a_broker_registers_again_under_its_own_registration_alone(
    code: ErrorCode, owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    """P-460: not when it was unregistered. With another process of its id it would take turns without end."""
    tested = registration(Channel(BrokerHeartbeatResponse(error_code=code)))
    tested._is_registered = True
    tested._caught_up.set()
    image = tested._controller.image
    if owner != "nobody":
        incarnation = tested._incarnation_id if owner == "itself" else bytes(16)
        image.brokers = {1: broker_image(1, 10)._replace(incarnation_id=incarnation)}
    tested._config = BrokerConfig.from_properties({"node.id": "1"})
    with pytest.raises(KafkaError):
        await tested._send_heartbeat()
    assert tested._is_registered is (owner != "itself")
    assert ("another process has registered as broker 1" in caplog.text) is (owner == "another")
    assert ("broker 1 was unregistered" in caplog.text) is (owner == "nobody")


async def test_an_unregistered_broker_stays_away_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """P-460: it goes on with its heartbeats, which are all refused."""
    channel = Channel(
        BrokerRegistrationResponse(broker_epoch=7),
        BrokerHeartbeatResponse(is_caught_up=True),
        BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
    )
    tested = registration(channel)
    with trio.move_on_after(600):
        await tested.run()
    first, *others = channel.requests
    assert type(first) is BrokerRegistrationRequest
    assert {type(request) for request in others} == {BrokerHeartbeatRequest}
    assert len(others) > 100
    assert caplog.text.count("was unregistered") == 1


async def test_an_unregistered_broker_stops_at_once() -> None:
    """It leads nothing that the controller could move."""
    tested = running(Channel())
    tested._controller.image.brokers = {}
    await tested.leave()
    assert trio.current_time() == 0


class Refusing:
    """A controller in this process that refuses commands at first."""

    def __init__(self, refusals: int, code: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        self.image = ClusterImage()
        self.image.brokers = {1: broker_image(1, 10)}
        self.refusals = refusals
        self.code = code
        self.submitted: list[float] = []
        self.on_taken: Any = lambda: None

    def subscribe(self, subscriber: Any) -> None: ...

    async def submit(self, command: Any, timeout_ms: int) -> None:
        await trio.lowlevel.checkpoint()
        self.submitted.append(trio.current_time())
        if len(self.submitted) <= self.refusals:
            raise CommandRefused(self.code, "no time")
        self.on_taken()


async def test_cordoned_directories_that_could_not_be_reported_are_reported_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """KIP-1066: the controller would go on placing replicas there until the next change of a setting."""
    controller: Any = Refusing(2)

    def take() -> None:
        controller.image.brokers = {1: broker_image(1, 10)._replace(cordoned_log_dirs=(bytes(16),))}

    controller.on_taken = take
    with trio.move_on_after(10 * AMEND_PAUSE_S):
        await report_cordoned_directories(controller, 1, lambda: [bytes(16)])
    assert controller.submitted == pytest.approx([0, AMEND_PAUSE_S, 2 * AMEND_PAUSE_S])
    assert caplog.text.count("cordoned log directories of this broker could not be reported") == 2


async def test_an_unregistered_broker_reports_no_cordoned_directories_and_goes_on() -> None:
    """It was a KeyError in a task of the node: UnregisterBroker and any change of a setting ended the process."""
    controller: Any = Refusing(0)
    subscribers: list[Any] = []
    controller.subscribe = subscribers.append
    asked: list[float] = []

    def cordoned() -> list[bytes]:
        asked.append(trio.current_time())
        return [bytes(16)] if len(asked) > 1 else []

    async with trio.open_nursery() as nursery:
        nursery.start_soon(report_cordoned_directories, controller, 1, cordoned)
        await trio.testing.wait_all_tasks_blocked()
        old, controller.image = controller.image, ClusterImage()
        controller.image.configs = {(4, "1"): {"cordoned.log.dirs": "*"}}
        for subscriber in subscribers:
            subscriber(old, controller.image)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert len(asked) == 2
    assert controller.submitted == []


async def test_a_directory_that_could_not_be_registered_is_registered_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After an upgrade of metadata.version."""
    controller: Any = Refusing(1)
    lacking = {"is": True}
    controller.on_taken = lambda: lacking.update({"is": False})
    controller.subscribe = lambda check: check(controller.image, controller.image)
    monkeypatch.setattr(broker_registration, "lacks_directories", lambda image, broker_id: lacking["is"])
    registered: Any = SimpleNamespace(broker_id=1)
    await register_again(controller, registered)
    assert controller.submitted == pytest.approx([0, AMEND_PAUSE_S])
    assert "the log directory of this broker could not be registered" in caplog.text


@pytest.mark.parametrize(
    ("code", "kind"), [(ErrorCode.KAFKA_STORAGE_ERROR, StorageError), (ErrorCode.REQUEST_TIMED_OUT, CommandRefused)]
)
async def test_a_single_node_whose_registration_is_refused_does_not_start(
    code: ErrorCode, kind: type[Exception]
) -> None:
    host: Any = SimpleNamespace(random=random.Random(1))
    directory: Any = SimpleNamespace(path="/data")
    controller: Any = Refusing(1, code)
    with pytest.raises(kind, match="no time"):
        await register_at_once(
            controller, BrokerConfig.from_properties({}), [], directory, [bytes(16)], host, is_clean_restart=True
        )


async def test_a_controller_whose_registration_fails_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """It tries again, in growing pauses."""
    refused = ControllerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="moved")
    channel = Channel(refused, refused, ControllerRegistrationResponse())
    image = ClusterImage()
    image.features = {"metadata.version": 30}
    node: Any = SimpleNamespace(
        image=image, settings=SimpleNamespace(node_id=1, supported_features={}), subscribe=lambda subscriber: None
    )
    tested = ControllerRegistration.__new__(ControllerRegistration)
    tested._controller = node
    tested._channel = cast("Any", channel)
    tested._node_id = 1
    tested._endpoints = []
    tested._incarnation_id = b"i" * 16
    tested._changed = trio.Event()
    with trio.move_on_after(2):
        await tested.run()
    assert len(channel.requests) >= 3
    assert caplog.text.count("this controller is not registered yet: moved") == 1
