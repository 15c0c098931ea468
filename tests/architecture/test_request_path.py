"""No function is made for each request: no lambda, nested function or `partial` on the path of frequent requests.

A function that is called with arguments costs less and reads no worse. What may make one, each with its reason, is in
`EXCEPTIONS`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "pykbroker"

FREQUENT = [
    "add_offsets_to_txn",
    "add_partitions_to_txn",
    "api_versions",
    "consumer_group_heartbeat",
    "end_txn",
    "fetch",
    "find_coordinator",
    "heartbeat",
    "join_group",
    "leave_group",
    "list_offsets",
    "metadata",
    "offset_commit",
    "offset_fetch",
    "produce",
    "share_acknowledge",
    "share_fetch",
    "share_group_heartbeat",
    "streams_group_heartbeat",
    "sync_group",
    "txn_offset_commit",
    "write_share_group_state",
    "write_txn_markers",
]
"""Handlers of what a client or broker sends regularly."""

PATHS = (
    *(f"handlers/{name}.py" for name in FREQUENT),
    "coordination/*.py",
    "groups/*.py",
    "groups/*/requests.py",
    "groups/*/heartbeat.py",
    "logstore/loaded_log.py",
    "logstore/partition_log.py",
    "logstore/producer_state.py",
    "logstore/segment.py",
    "metadata/metadata_cache.py",
    "network/*.py",
    "protocol/records/*.py",
    "quotas/throttling.py",
    "replication/*.py",
    "requests/*.py",
    "security/standard_authorizer.py",
    "share_partitions/*.py",
    "share_state/*.py",
    "transactions/*.py",
)

EXCEPTIONS = {
    "once for a node, connection or session": {
        "network.listener.ListenerLimits.__init__",
        "network.listener._addresses",
        "replication.directory_reports.DirectoryReports.__init__",
        "replication.replication_tasks.ReplicationTasks._run_fetcher",
        "replication.replication_tasks.ReplicationTasks._start",
        "requests.share_requests.watch_connection",
        "share_partitions.registry.SharePartitions._begin_end",
        "share_partitions.registry.SharePartitions._remove_leader",
        "share_partitions.registry.SharePartitions.find_or_load",
        "transactions.completion.TransactionCompletion._send",
        "transactions.coordinator.TransactionCoordinator._make_shard",
        "transactions.remote_verification.RemoteVerification.ask",
    },
    "when metadata, settings or the topics of a regular expression change, or by a timer": {
        "coordination.re2_pattern.compile_pattern",
        "groups.offsets.expired_offsets",
        "groups.share.requests.ShareGroupRequests._initialize_from",
        "groups.share.requests.ShareGroupRequests.initialize",
        "network.connection_limits.ConnectionLimits._close_excess",
        "network.connection_limits.ConnectionLimits._read_overrides",
        "requests.topic_encoder.TopicEncoder._frame",
    },
    "the request waits, for replication or for another broker, or leaves work for after its reply": {
        "coordination.runtime.CoordinatorRuntime._await_replicas",
        "coordination.runtime.CoordinatorRuntime.wait_replicated",
        "coordination.runtime.CoordinatorRuntime.when_late",
        "coordination.runtime.CoordinatorRuntime.when_replicated",
        "coordination.runtime.CoordinatorRuntime.when_settled",
        "requests.share_state_calls._outcomes",
        "share_partitions.leader.ShareLeader._write_queued",
        "share_state.persister.SharePersister.begin_write",
        "transactions.coordinator.TransactionCoordinator._deliver",
    },
    "an administrator's request": {
        "groups.administration._prepare_deletions",
        "groups.share.requests.ShareGroupRequests._administer",
        "groups.share.requests.ShareGroupRequests._delete_partitions",
        "groups.share.requests.ShareGroupRequests.alter_offsets",
        "groups.share.requests.ShareGroupRequests.delete_offsets",
        "groups.share.requests.ShareGroupRequests.delete_states",
        "groups.share.requests.ShareGroupRequests.summaries",
        "requests.config_alteration._stored",
        "requests.latest_offsets.latest_offsets",
        "requests.token_requests.change_token",
    },
}


def makers(tree: ast.AST, name: str, *, is_in_function: bool = False) -> Iterator[str]:
    """Qualified names of the functions that make a function when they are called."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if is_in_function:
                yield name
            else:
                yield from makers(node, f"{name}.{node.name}", is_in_function=True)
        elif isinstance(node, ast.ClassDef):
            yield from makers(node, f"{name}.{node.name}", is_in_function=is_in_function)
        else:
            is_partial = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "partial"
            if is_in_function and (is_partial or isinstance(node, ast.Lambda)):
                yield name
            yield from makers(node, name, is_in_function=is_in_function)


def test_no_function_is_made_for_each_request() -> None:
    found: set[str] = set()
    for pattern in PATHS:
        paths = list(ROOT.glob(pattern))
        assert paths, f"{pattern} names no module"
        for path in paths:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.update(makers(ast.parse(path.read_text()), module))
    allowed = set().union(*EXCEPTIONS.values())
    assert sorted(found - allowed) == [], "give the called function arguments, or say above why it makes one"
    assert sorted(allowed - found) == [], "these make no function any more: take them out of EXCEPTIONS"
