"""Single steps of a node's housekeeping and of the calls between its parts, with parts in memory."""

from __future__ import annotations

import os
import ssl
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from pykbroker.controller.node_client import NodeUnreachable
from pykbroker.coordination.internal_topic import InternalTopic
from pykbroker.errors import CoordinatorError, KafkaError
from pykbroker.groups.coordinator import GroupCoordinator
from pykbroker.logstore.errors import DirectoryLocked, LogError, StorageError
from pykbroker.network.connection_limits import ConnectionLimits
from pykbroker.node import broker_services, controller_server, housekeeping, quorum_node, sasl_mechanisms
from pykbroker.node.node_directory import open_directories
from pykbroker.node.running_listeners import RunningListeners
from pykbroker.node.sasl_mechanisms import _MetadataCredentials
from pykbroker.processes.prepared_process import _end
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from pykbroker.protocol.messages.heartbeat import HeartbeatRequest
from pykbroker.protocol.steps import Steps
from pykbroker.quotas.rates import QuotaWindows
from pykbroker.quotas.switch import QuotaSwitch
from pykbroker.quotas.throttling import NS_PER_PERCENT, RequestQuota
from pykbroker.replication.directory_moves import DirectoryMoves
from pykbroker.replication.directory_reports import DirectoryReports
from pykbroker.replication.offset_waiters import OffsetWaiter
from pykbroker.security.tls import listener_tls
from pykbroker.security.tls.connecting import with_tls
from pykbroker.share_partitions.registry import SharePartitions
from pykbroker.testing import client_kafka_python
from pykbroker.testing.local_cluster import LocalCluster
from pykbroker.transactions.coordinator import TransactionCoordinator
from pykbroker.transactions.marker_queue import MarkerQueue
from pykbroker.transactions.timeouts import TransactionTimeouts
from tests.support.data_path import NOW_MS, ManualClock


def fake(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


# Housekeeping


async def test_a_file_that_cannot_be_trimmed_is_trimmed_the_next_time(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[float] = []

    def trim_idle() -> None:
        calls.append(trio.current_time())
        if len(calls) == 1:
            raise StorageError("/data/t-0", "Input/output error")

    services = fake(log_directory=fake(filesystem=fake(trim_idle=trim_idle)))
    with trio.move_on_after(2.5 * housekeeping.TRIM_INTERVAL_S):
        await housekeeping._trim_idle_logs(services)
    assert len(calls) == 2
    assert caplog.text.count("a log file could not be trimmed: /data/t-0: Input/output error") == 1


class Copy:
    """The copy of a log that moves to another directory."""

    has_unflushed_segments = True
    log_end_offset = 7

    def __init__(self, failure: LogError | None = None) -> None:
        self.done: list[Any] = []
        self._failure = failure

    def begin_flush(self, *, include_active: bool) -> None:
        self.done.append(("flush", include_active))

    def advance_log_start(self, offset: int) -> None:
        if self._failure is not None:
            raise self._failure
        self.done.append(("start", offset))

    def delete_old_segments(self, now_ms: int, end_offset: int) -> None:
        self.done.append(("delete", end_offset))


async def test_the_copy_of_a_log_is_kept_like_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others run after each log, as each turn is over at once."""
    monkeypatch.setattr("pykbroker.controller.turns.TURN_S", -1.0)
    turns = [0]

    async def count() -> None:
        while True:
            await trio.lowlevel.checkpoint()
            turns[0] += 1

    failures: list[LogError] = []
    copy = Copy()
    failure = StorageError("/b/t-0", "Input/output error")
    broken = Copy(failure)
    log = fake(delete_old_segments=lambda *_: 0, has_unflushed_segments=False)
    partitions = [
        fake(
            is_closed=False,
            log=log,
            high_watermark=9,
            log_start_offset=5,
            future=each,
            on_storage_error=failures.append,
        )
        for each in (copy, broken)
    ]
    deleted: list[int] = []
    directory = [fake(delete_due_files=deleted.append) for _ in range(3)]
    services = fake(
        clock=ManualClock(),
        partitions=fake(all=lambda: partitions, get=lambda *_: partitions[0]),
        log_directory=fake(
            write_checkpoints=lambda marks: iter([None, None]),
            delete_due_logs=lambda *_: False,
        ),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        await housekeeping._delete_old_segments(services)
        assert copy.done == [("start", 5), ("delete", 5)]
        assert failures == [failure]
        copy.done.clear()
        await housekeeping._flush_and_checkpoint(services)
        assert copy.done == [("flush", False)]
        before = turns[0]
        services.log_directory = Directory(directory)
        await housekeeping._delete_due(services, 0)
        assert deleted == [NOW_MS] * 3
        assert turns[0] >= before + 2
        nursery.cancel_scope.cancel()


class Directory(list[Any]):
    """A log directory with nothing to delete but the files of its logs."""

    def delete_due_logs(self, *_: object) -> bool:
        return False


async def test_a_log_that_moves_is_not_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets: list[int | None] = []

    async def pause(services: object) -> None:
        await trio.sleep(1)

    class Cleaner:
        def __init__(self, directory: object) -> None: ...

        def begin(self, now_ms: int, stable_offset: Any) -> Steps[None]:
            offsets.extend(stable_offset("t", number) for number in range(3))
            yield

        def write_checkpoint(self) -> Any:
            return iter(())

    monkeypatch.setattr("pykbroker.logstore.log_cleaner.LogCleaner", Cleaner)
    monkeypatch.setattr(housekeeping, "_may_be_compacted", lambda log: True)
    monkeypatch.setattr(housekeeping, "_cleaner_backoff", pause)
    found = {0: fake(future=None, last_stable_offset=7, log=None), 1: fake(future=Copy(), log=None)}
    partitions = fake(all=lambda: list(found.values()), get=lambda topic, number: found.get(number))
    with trio.move_on_after(1.5):
        await housekeeping._clean_logs(fake(partitions=partitions, clock=ManualClock(), log_directory=None))
    assert offsets == [7, None, None]


# Calls between parts


async def test_an_api_that_no_controller_has() -> None:
    with pytest.raises(KafkaError, match="the controller does not serve HeartbeatRequest") as raised:
        await controller_server.call(fake(), HeartbeatRequest())
    assert raised.value.error_code is ErrorCode.UNSUPPORTED_VERSION


def test_other_brokers_of_a_broker_alone() -> None:
    with pytest.raises(NodeUnreachable, match="broker 3 is not registered"):
        broker_services._connect(None, 3, "markers")
    clients = fake(connect=lambda broker_id, purpose: (broker_id, purpose))
    assert broker_services._connect(clients, 3, "markers") == (3, "markers")


async def test_an_unregistered_broker_reports_no_directories() -> None:
    """The fake has no channel."""
    await DirectoryReports._report(fake(_image=lambda: fake(brokers={}), _node_id=1), [])


def test_credentials_of_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_mechanisms, "TOKENS_KEPT_MAX", 2)
    monkeypatch.setattr(
        "pykbroker.controller.metadata.delegation_tokens.token_by_id",
        lambda image, token_id: fake(owner="User:alice", expiration_timestamp=5) if token_id != "gone" else None,
    )
    monkeypatch.setattr("pykbroker.security.scram.credential_of_password", lambda *_: object())
    credentials = fake(
        _image=lambda: None, _secret_key="key", _of_tokens={}, _hash=None, _host=fake(secrets=fake(randbytes=bytes))
    )
    monkeypatch.setattr("pykbroker.security.scram.random_salt", lambda source: b"")
    assert _MetadataCredentials.of_token(credentials, "gone") is None
    for name in ("a", "b", "a", "c"):
        assert _MetadataCredentials.of_token(credentials, name) is not None
    assert list(credentials._of_tokens) == ["c"]


# Limits


async def test_addresses_that_are_quiet_are_forgotten() -> None:
    limits = fake(
        _quotas=fake(active=fake(connection_limit=lambda host: 2.0, windows=QuotaWindows(2, 1000))),
        _address_rates={},
        _rates_of=lambda listener: (),
    )
    listener: Any = None
    assert ConnectionLimits.address_throttle_ms(limits, listener, "a") == 0
    assert ConnectionLimits.address_throttle_ms(limits, listener, "b") == 0
    assert list(limits._address_rates) == ["a", "b"]
    await trio.sleep(10)
    assert ConnectionLimits.address_throttle_ms(limits, listener, "c") == 0
    assert list(limits._address_rates) == ["c"]


def test_the_time_of_a_request_that_still_runs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter_ns", lambda: 5 * NS_PER_PERCENT)
    quota = fake(_spent_ns=NS_PER_PERCENT, _since_ns=3 * NS_PER_PERCENT, _counted_ns=0)
    assert RequestQuota._uncounted_percent(quota) == 3
    assert RequestQuota._uncounted_percent(quota) == 0


def test_host_names_are_resolved_in_the_nursery_that_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    class Names:
        def begin(self, nursery: object) -> None:
            done.append(nursery)

        def resolve(self, name: str, use: object) -> None:
            done.append(name)

    monkeypatch.setattr("pykbroker.quotas.host_names.HostNames", Names)
    nursery: Any = object()
    switch = QuotaSwitch()
    switch.begin(nursery)
    switch.resolve("a.example", done.append)
    switch.resolve("b.example", done.append)
    assert done == [nursery, "a.example", "b.example"]


# Other parts


def test_a_share_partition_that_another_broker_leads_by_now() -> None:
    removed: list[Any] = []
    topic_partition = fake(topic_id=b"t" * 16, partition=0)
    leader = fake(is_current=False)
    parts = fake(_leaders={("g", b"t" * 16, 0): leader}, _end_leader=removed.append)
    assert SharePartitions.find(parts, "g", topic_partition) is None
    assert removed == [leader]


def test_markers_of_transactions_that_are_completed_elsewhere_are_dropped() -> None:
    queue = MarkerQueue()
    over, going = (fake(key=number, is_over=number == 1, marker=fake(producer_id=number)) for number in (1, 2))
    for completing in (over, going):
        queue.put(completing, ("t", 0))
    assert queue.take() == [(going, [("t", 0)])]
    assert queue.take() == []


def test_names_of_a_listeners_certificates() -> None:
    names = listener_tls._Loaded.__str__
    assert names(fake(stores=fake(names=[fake(subject="CN=a"), fake(subject="CN=b")]))) == "CN=a; CN=b"
    assert names(fake(stores=fake(names=[]))) == "no certificate"


def test_stores_without_a_key_need_no_handshake() -> None:
    """The fake client has no settings that could be used."""
    listener_tls._check_handshake(fake(server=None), fake(), "old and new")


def test_a_topic_that_is_there_later(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(client_kafka_python, "time", fake(monotonic=lambda: 0.0, sleep=slept.append))
    answers = iter([None, {0, 1}])
    consumer = fake(partitions_for_topic=lambda topic: next(answers))
    assert client_kafka_python._partitions(consumer, "t", 5.0, is_awaited=True) == {0, 1}
    assert len(slept) == 1


def test_nodes_without_a_majority_stop_without_a_controller() -> None:
    done: list[str] = []

    def note(*words: str) -> None:
        done.append(" ".join(words))

    nodes = {
        number: fake(
            close=partial(note, "close", str(number)),
            begin_to_stop=partial(note, "stop", str(number)),
            stop_without_controller=partial(note, "alone", str(number)),
        )
        for number in (1, 2, 3)
    }
    cluster = fake(_finalizer=lambda: None, _nodes=nodes, _is_temporary=False, _running=lambda: [nodes[2]])
    LocalCluster.close(cluster)
    assert done == ["stop 1", "stop 2", "stop 3", "alone 2", "close 3", "close 2", "close 1"]


def test_the_end_of_a_prepared_process_is_that_of_its_brokers() -> None:
    closed: list[str] = []
    broker = fake(close_stdin=lambda: closed.append("stdin"))
    popen = fake(wait=lambda timeout_s: closed.append("waited"))
    brokers: Any = [broker]
    _end(popen, fake(close=lambda: None), fake(close=lambda: None), brokers, os.getpid())
    assert closed == ["stdin", "waited"]


def test_a_reader_counts_the_bytes_below_the_new_high_watermark() -> None:
    """Those of a follower, which consumers may read (KIP-392)."""
    from pykbroker.replication.offset_waiters import OffsetWaiters
    from pykbroker.replication.replica import Replica

    moved: list[Any] = []
    for size, left in ((40, 60), (None, None)):
        waiters, waiter = OffsetWaiters(), OffsetWaiter(100)
        waiter.register(waiters)

        def size_between(begin: int, end: int, size: int | None = size) -> int | None:
            moved.append((begin, end))
            return size

        segments = fake(size_between=size_between)
        replica = fake(
            high_watermark=3,
            stable_before=lambda: 0,
            waiters=waiters,
            log=fake(loaded=fake(segments=segments)),
            notify_stable=lambda before: None,
            wake_acks=lambda: None,
        )
        Replica.move_high_watermark(replica, 9)
        assert replica.high_watermark == 9
        assert waiter.bytes_wanted == left if left is not None else waiter.bytes_wanted <= 0
    assert moved == [(3, 9)] * 2


async def test_a_late_transaction_of_another_coordinator_is_left_to_it(caplog: pytest.LogCaptureFixture) -> None:
    async def begin(*_: object) -> Any:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "")

    shard = fake(timed_out=lambda now_ms: [fake(transactional_id="x")], has_ongoing=False)
    coordinator = fake(_begin_event=begin, level=2)
    abort = partial(TransactionCoordinator._abort_late, coordinator)
    runtime = fake(now_ms=lambda: 5, shards={0: shard})
    await TransactionTimeouts(runtime, fake(), abort)._abort_timed_out()
    assert "transactional id 'x': its timed-out transaction is not aborted: NOT_COORDINATOR" in caplog.text


async def test_a_log_that_is_lost_between_two_names_is_offline() -> None:
    offline: list[Any] = []
    failed: list[Any] = []
    log: Any = object()
    move = fake(partition=fake(log=log, on_storage_error=failed.append), key=("t", 0), not_before=0.0)
    for present, expected in ((log, []), (None, [[("t", 0)]])):
        moves = fake(
            _is_current=lambda move: True,
            _directories=fake(get=lambda topic, number, present=present: present),
            _partitions=fake(take_offline=offline.append),
        )
        failure = StorageError("/a/t-0", "Input/output error")
        DirectoryMoves._on_failure(moves, move, failure)
        assert offline == expected
        assert failed[-1] is failure
    assert move.not_before > trio.current_time()


def test_a_listener_with_tls_that_is_added_to_others() -> None:
    added: list[Any] = []
    tls = fake(add=lambda *words: added.append(words))
    nursery: Any = None
    config: Any = None
    assert RunningListeners._tls_with(fake(_services=fake(tls=tls)), "SSL2", config, nursery) is tls
    assert added == [("SSL2", None)]


def test_the_offsets_of_a_group_whose_partition_is_offline() -> None:
    coordinator = fake(runtime=fake(find=lambda group_id: (0, None), partition=lambda number: None))
    with pytest.raises(CoordinatorError) as raised:
        GroupCoordinator.offsets_partition(coordinator, "g")
    assert raised.value.error_code is ErrorCode.NOT_COORDINATOR


async def test_a_handshake_that_is_cancelled_closes_the_stream() -> None:
    ours, theirs = trio.testing.memory_stream_pair()

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        return ours

    tls: Any = fake(client=ssl.create_default_context())
    with trio.move_on_after(1):
        await with_tls(open_stream, tls)("localhost", 9093)
    assert await theirs.receive_some()
    assert await theirs.receive_some() == b""


@pytest.mark.parametrize(("cluster_id", "found"), [("", (None, "host:9093: SASL is needed")), ("id", ("id", ""))])
async def test_a_controller_that_does_not_say_which_cluster_this_is(
    monkeypatch: pytest.MonkeyPatch, cluster_id: str, found: tuple[str | None, str]
) -> None:
    """At levels before controller registration the response has an error and still the cluster id."""

    class Client:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def request(self, *_: object) -> Any:
            return fake(error_code=35, error_message="SASL is needed", cluster_id=cluster_id)

        async def close(self) -> None: ...

    monkeypatch.setattr("pykbroker.controller.node_client.NodeClient", Client)
    monkeypatch.setattr(quorum_node, "controller_opener", lambda config, host: None)
    address: Any = "host:9093"
    host: Any = None
    assert await quorum_node._cluster_id_at(address, fake(node_id=1), host) == found


async def test_a_handshake_that_fails_in_another_way_closes_the_stream() -> None:
    """Such as by a defect: it is not a refusal of the other node."""
    closed: list[bool] = []

    class Broken(trio.abc.Stream):
        async def send_all(self, data: object) -> None:
            raise ValueError("a defect")

        async def wait_send_all_might_not_block(self) -> None: ...

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            return b""

        async def aclose(self) -> None:
            closed.append(True)

    async def open_stream(host: str, port: int) -> trio.abc.Stream:
        return Broken()

    tls: Any = fake(client=ssl.create_default_context())
    with pytest.raises(ValueError, match="a defect"):
        await with_tls(open_stream, tls)("localhost", 9093)
    assert closed == [True]


def test_a_further_directory_that_another_process_uses_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that cannot be opened only go offline."""

    def refuse(path: str, **_: object) -> Any:
        raise DirectoryLocked(path, "another process uses it")

    monkeypatch.setattr("pykbroker.logstore.log_directory.LogDirectory.open", refuse)
    config, metadata, host = fake(log=fake(dirs=["/b"])), fake(path="/a"), fake(filesystem=None)
    identity: Any = None
    with pytest.raises(DirectoryLocked, match="/b: another process uses it"):
        open_directories(config, metadata, identity, host, 10, is_new=False)


# Calls to the controller


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR])
async def test_an_internal_topic_that_exists_already_is_no_failure(code: ErrorCode) -> None:
    topic = InternalTopic("__consumer_offsets", 50, 3, 3, {"cleanup.policy": "compact"})
    asked: list[CreateTopicsRequest] = []

    async def request(message: CreateTopicsRequest, timeout_ms: int) -> CreateTopicsResponse:
        asked.append(message)
        result = CreatableTopicResult(name=topic.name, error_code=code, error_message="as the controller says")
        return CreateTopicsResponse(topics=[result])

    refused: KafkaError | None = None
    try:
        await broker_services._create_internal_topic(fake(request=request), topic)
    except KafkaError as error:
        refused = error
    assert [(each.name, each.num_partitions, each.replication_factor) for each in asked[0].topics] == [
        ("__consumer_offsets", 50, 3)
    ]
    if code is ErrorCode.INVALID_REPLICATION_FACTOR:
        assert refused is not None
        assert (refused.error_code, refused.message) == (code, "as the controller says")
    else:
        assert refused is None
