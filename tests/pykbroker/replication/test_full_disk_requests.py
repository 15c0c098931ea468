"""Replicas that a full broker gives up, when the controller does not answer."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from pykbroker.controller.metadata.image import ClusterImage, PartitionImage
from pykbroker.errors import KafkaError
from pykbroker.logstore.errors import StorageFull
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from pykbroker.replication.full_disk import RETRY_S, TAIL_PAUSE_S, TAIL_S, FullDisk, ReportedFailures
from tests.pykbroker.replication.test_failed_directories import Channel
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.replicas import broker_image, image_of


async def test_a_request_that_fails_is_logged_once_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    channel = Channel(
        KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller"),
        AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        *[AssignReplicasToDirsResponse()] * 1000,
    )
    filesystem = FakeFileSystem(capacity_bytes=10)
    filesystem.make_directory("/data")
    directory: Any = SimpleNamespace(filesystem=filesystem, path="/data")
    partitions: Any = SimpleNamespace(environment=SimpleNamespace(node_id=1), get_by_id=lambda *key: None)
    current = {"image": ClusterImage()}
    failures = ReportedFailures()
    task = FullDisk(failures, partitions, directory, b"d" * 16, lambda: current["image"], channel, lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        failures.report(StorageFull("/data/t-0", "no space left on the volume"))
        await trio.sleep(1)
        assert channel.asked == [], "this broker is not registered, or nothing is known of its replicas"
        partition = PartitionImage(0, (1, 2), (1, 2), 2, 0, 0)
        current["image"] = image_of(partition, {1: broker_image(1, 10)})
        failures.wake.set()
        await trio.sleep(2.5 * RETRY_S)
        nursery.cancel_scope.cancel()
    assert len(channel.asked) >= 3
    said = "replicas that this broker gives up or takes up could not be reported: no controller"
    assert caplog.text.count("could not be reported") == 1
    assert said in caplog.text
    assert "this broker gives up 1 replica(s)" in caplog.text


async def test_a_leader_is_given_up_soon_after_its_followers_have_the_whole_log() -> None:
    """Nothing wakes the task when they have fetched the rest, so that it looks often."""
    channel = Channel(*[AssignReplicasToDirsResponse()] * 1000)
    filesystem = FakeFileSystem(capacity_bytes=10)
    filesystem.make_directory("/data")
    directory: Any = SimpleNamespace(filesystem=filesystem, path="/data")
    followers_have_all = False
    led = SimpleNamespace(
        is_leader=True, log=SimpleNamespace(log_end_offset=5), is_in_every_isr_log=lambda offset: followers_have_all
    )
    partitions: Any = SimpleNamespace(environment=SimpleNamespace(node_id=1), get_by_id=lambda *key: led)
    image = image_of(PartitionImage(0, (1, 2), (1, 2), 1, 0, 0), {1: broker_image(1, 10)})
    failures = ReportedFailures()
    task = FullDisk(failures, partitions, directory, b"d" * 16, lambda: image, channel, lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        failures.report(StorageFull("/data/t-0", "no space left on the volume"))
        await trio.sleep(TAIL_S / 2)
        assert channel.asked == []
        followers_have_all = True
        await trio.sleep(2 * TAIL_PAUSE_S)
        assert len(channel.asked) == 1
        nursery.cancel_scope.cancel()
