"""Single steps of a controller with input that other parts seldom give it."""

from __future__ import annotations

import logging
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller import raft_wire
from pykbroker.controller.active_controller import ActiveController
from pykbroker.controller.formatting import first_command, write_first_levels
from pykbroker.controller.image_publisher import ImagePublisher
from pykbroker.controller.metadata.features import SUPPORTED_FEATURES
from pykbroker.controller.node import ControllerNode
from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.controller.peer_links import _Lane
from pykbroker.controller.raft import local_messages as local
from pykbroker.controller.raft.follower import Unattached
from pykbroker.controller.raft.leader import OBSERVER_SESSION_TIMEOUT_MS, Leader
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import UpdateVoterRequest
from pykbroker.controller.raft.roles import NEVER_MS
from pykbroker.controller.raft.voter_changes import VoterChanges
from pykbroker.controller.raft_driver import RaftDriver
from pykbroker.logstore.errors import CorruptSegment, InconsistentDirectory, StorageError
from pykbroker.protocol.error_codes import ErrorCode
from tests.support.fake_filesystem import FakeFileSystem


def fake(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


def test_features_that_do_not_exist_here_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A newer Kafka has formatted the directory."""
    filesystem = FakeFileSystem()
    filesystem.make_directory("/data")
    write_first_levels(filesystem, "/data", {"metadata.version": 25, "later.version": 1}, 0)
    settings = fake(bootstrap_levels={}, data_directory="/data", supported_features=SUPPORTED_FEATURES)
    with caplog.at_level(logging.WARNING):
        command = first_command(filesystem, settings, [], is_new=True)
    assert command.levels == {"metadata.version": 25}
    assert "without these features, which this version does not support: later.version=1" in caplog.text


def test_records_that_were_read_before_a_snapshot_came_are_not_published() -> None:
    publisher = fake(applied=OffsetAndEpoch(9, 2))
    image: Any = object()
    first, last = OffsetAndEpoch(3, 1), OffsetAndEpoch(5, 1)
    assert not ImagePublisher.publish_read(publisher, image, first, last)
    assert publisher.applied == OffsetAndEpoch(9, 2)


def test_a_leader_that_does_not_know_its_epoch_gives_no_message() -> None:
    asked = UpdateVoterRequest(*([None] * len(UpdateVoterRequest._fields)))  # type: ignore[arg-type]
    leader = fake(leader_epoch=-1, leader_id=1)
    for response in (
        fake(current_leader=leader, error_code=ErrorCode.NONE),
        fake(current_leader=fake(leader_epoch=4, leader_id=1), error_code=ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert raft_wire.message_from_voter_response(asked, 1, response) is None


def test_observers_that_are_silent_are_forgotten() -> None:
    silent = fake(last_fetch_ms=0, describe=lambda: ("silent", 0))
    present = fake(last_fetch_ms=1, describe=lambda: ("present", 0))
    own = fake(node_id=1, is_voter=True, voters=fake(voter=lambda _: None), key=("own", 1), log=fake(end_offset=7))
    leader = fake(replica=own, observers={"s": silent, "p": present}, voters={})
    Leader.describe(leader, OBSERVER_SESSION_TIMEOUT_MS)
    assert list(leader.observers) == ["p"]


def test_a_node_that_becomes_a_voter_waits_for_a_leader_no_longer_than_others() -> None:
    replica = fake(may_be_elected=True, now_ms=5, random_timeout=lambda: 7)
    state = fake(replica=replica, deadline_ms=NEVER_MS)
    Unattached.on_voters_changed(state)
    assert state.deadline_ms == 12
    replica.now_ms = 100
    Unattached.on_voters_changed(state)
    assert state.deadline_ms == 12


def test_a_leader_that_cannot_write_resigns() -> None:
    given_up: list[StorageError] = []
    failure = StorageError("/data", "Input/output error")

    def fail(message: object) -> None:
        raise failure

    message: Any = object()
    RaftDriver.step_or_resign(fake(step=fail, _undo_append_and_resign=given_up.append), message)
    assert given_up == [failure]


def test_an_update_of_a_voter_before_the_first_commit_of_a_leader_is_tried_again() -> None:
    ended: list[ErrorCode] = []
    voter = fake(kraft_versions=(0, 1), supports=lambda level: True)
    changes = fake(_replica=fake(kraft_version=1, voters=[]), _is_committed=False, _end_change=ended.append)
    response = fake(error=ErrorCode.NONE, versions=(0, 1))
    VoterChanges._continue_updating(changes, fake(), voter, response)
    assert ended == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_message_to_a_node_without_an_address_is_dropped() -> None:
    link = fake(_unsent={str: "vote"}, _links=fake(address_of=lambda voter: None), _voter=2)
    step: Any = None
    trio.run(_Lane._send_next, link, step)
    assert link._unsent == {}


def test_a_damaged_segment_refuses_the_start_of_a_node() -> None:
    def fail(*, is_clean: bool) -> None:
        raise CorruptSegment("/data/__cluster_metadata-0/0.log", 61, "a CRC is wrong")

    with pytest.raises(InconsistentDirectory, match="a CRC is wrong; "):
        ControllerNode.open(fake(_open=fail))


def test_a_truncation_that_failed_is_undone_at_the_end() -> None:
    done: list[Any] = []
    failure = StorageError("/data", "Input/output error")
    driver = fake(truncation_error=failure, undo_append=done.append, step=done.append)
    ControllerNode.close(fake(_driver=driver, _storage=fake(close=lambda: done.append("closed"))))
    assert done == [failure, local.Resign(), "closed"]


def test_an_image_that_is_committed_in_part_waits_for_the_rest() -> None:
    noted: list[int] = []
    planned = deque([fake(base_offset=3, end_offset=9)])
    publisher = fake(applied=OffsetAndEpoch(3, 1))
    node = fake(
        _publisher=publisher,
        _queue=fake(planned=planned),
        _core=fake(high_watermark=5),
        _note_applied=noted.append,
    )
    ControllerNode.on_committed(node, 5)
    assert list(ControllerNode._apply_large(node)) == []
    assert (noted, len(planned), publisher.applied) == ([3], 1, OffsetAndEpoch(3, 1))


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        (StorageError("/data", "No space left on device"), [local.SnapshotFailed(2, True)]),
        (NodeUnreachable("it is gone"), [local.SnapshotFailed(2, False)]),
        (None, []),
    ],
)
def test_a_snapshot_that_is_not_installed(found: Exception | None, steps: list[Any]) -> None:
    done: list[Any] = []

    async def install(*_: object) -> Exception | None:
        return found

    node = fake(
        _installer=fake(take=lambda: (2, OffsetAndEpoch(9, 1)), install=install),
        _core=None,
        _storage=None,
        _wall_clock_ms=lambda: 0,
        step_or_resign=done.append,
        _publisher=fake(applied=OffsetAndEpoch(3, 1)),
    )
    trio.run(ControllerNode._install_snapshot, node)
    assert done == steps
    assert node._publisher.applied == OffsetAndEpoch(3, 1)


async def test_a_broker_that_comes_back_is_not_fenced() -> None:
    broker = fake(epoch=5, is_fenced=False)
    controller = fake(
        _now_ms=lambda: 0,
        _settings=fake(session_timeout_ms=9000),
        _node=fake(image=fake(brokers={1: broker})),
    )
    heartbeats: Any = fake(has_session=lambda *_: True)
    refuses: Any = None
    await ActiveController._fence_ended_process(controller, heartbeats, refuses, 1, 5)
