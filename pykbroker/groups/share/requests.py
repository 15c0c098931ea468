"""Requests about share groups to the group coordinator, and the initialization of their state in the background."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import trio

from pykbroker.controller.turns import in_turns, start_in_turns
from pykbroker.errors import CoordinatorError
from pykbroker.groups import modern_writes
from pykbroker.groups.large_writes import LargeWrites
from pykbroker.groups.modern.errors import GroupError
from pykbroker.groups.result import DeletedTopics, GroupResult, Initialization
from pykbroker.groups.shard import GroupShard
from pykbroker.groups.share.heartbeat import check_request
from pykbroker.groups.share.offsets import Alteration, Deletion, WantedOffsets
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.error_texts import TEXTS
from pykbroker.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pykbroker.protocol.steps import PIECE
from pykbroker.protocol.uuids import uuid_to_text

if TYPE_CHECKING:
    from pykbroker.coordination.runtime import CoordinatorRuntime

log = logging.getLogger(__name__)

NEGATIVE_PARTITION = "Initialize share group parameters has invalid partitionId"
DEFAULT_START_OFFSET = -1
"""Start offset of a share partition that has none yet: `share.auto.offset.reset` decides at the first fetch."""

Summary = tuple[int, int, int]
"""Start offset, -1 for none; leader epoch; delivery complete count, -1 if it is unknown."""


class ShareStates(Protocol):
    """The state of share partitions, which the share coordinator stores; errors are its own."""

    async def initialize(
        self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, start_offset: int
    ) -> GroupError | None:
        """Creates the state of a share partition, or replaces it; returns the error, with a client's text."""

    async def delete(self, group_id: str, topic_id: bytes, partition: int) -> ErrorCode:
        """Deletes the state of a share partition, if there is one."""

    async def read_summary(self, group_id: str, topic_id: bytes, partition: int) -> Summary | None:
        """The start offset of a share partition, and what its lag is computed from; None if it cannot be read."""


class ShareGroupRequests:
    """Share groups whose partition of `__consumer_offsets` this broker leads.

    Args:
        runtime: the group coordinator's runtime.
        states: the state of share partitions.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], states: ShareStates) -> None:
        self._runtime = runtime
        self._states = states
        self._large = LargeWrites(runtime)

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> ShareGroupHeartbeatResponse:
        """Handles ShareGroupHeartbeat; waits until the state in the response is stored.

        Partitions that are new to the group are initialized in the background; a later heartbeat assigns them.
        """
        check_request(request)
        group_id, names = request.group_id, request.subscribed_topic_names or ()
        _, shard = self._runtime.find(group_id)
        if len(names) > PIECE:
            await in_turns(shard.share.topics.prepare(names))
        if modern_writes.is_long_share_heartbeat(shard, request):
            write = await self._large.begin_write(modern_writes.SHARE_HEARTBEAT, request, client_id, client_host)
        else:
            write = self._runtime.begin_write(group_id, modern_writes.share_heartbeat, request, client_id, client_host)
        response: ShareGroupHeartbeatResponse = await self._runtime.confirmed(group_id, write)
        if write.result.initialization is not None and self._runtime.nursery is not None:
            self._runtime.nursery.start_soon(self.initialize, write.result.initialization)
        return response

    async def initialize(self, wanted: Initialization) -> None:
        """Initializes share partitions; after an error a later heartbeat tries again."""
        offsets = {
            topic_id: dict.fromkeys(sorted(partitions), DEFAULT_START_OFFSET)
            for topic_id, partitions in wanted.partitions.items()
        }
        if await self._initialize_from(wanted, offsets):
            # Another broker that has become the coordinator initializes them with a later heartbeat.
            with suppress(CoordinatorError):
                self._runtime.begin_write(wanted.group_id, lambda shard, now_ms: shard.share.not_initialized(wanted))

    async def _initialize_from(
        self, wanted: Initialization, offsets: Mapping[bytes, Mapping[int, int]]
    ) -> dict[tuple[bytes, int], GroupError]:
        """Initializes share partitions from start offsets; returns errors.

        If one fails, none is marked as initialized, as in Kafka.
        """
        group_id, errors = wanted.group_id, dict[tuple[bytes, int], GroupError]()

        async def initialize_one(topic_id: bytes, partition: int, offset: int) -> None:
            error = await self._states.initialize(group_id, topic_id, partition, wanted.state_epoch, offset)
            if error is not None:
                errors[topic_id, partition] = error

        async with trio.open_nursery() as nursery:
            calls = (
                (topic_id, partition, offset)
                for topic_id, partitions in offsets.items()
                for partition, offset in partitions.items()
            )
            await start_in_turns(nursery, initialize_one, calls)
        if errors:
            names = ", ".join(sorted({error.error_code.name for error in errors.values()}))
            log.warning("share group %s: the state of its partitions cannot be initialized: %s", group_id, names)
        else:
            with suppress(CoordinatorError):
                await self._large.begin_write(modern_writes.SHARE_INITIALIZED, wanted)
        return errors

    async def forget_topics(self, deleted: DeletedTopics) -> None:
        """Removes deleted topics from the states of a group, in turns with requests.

        Kafka's coordinator does this some time after the deletion, too.
        """
        with suppress(CoordinatorError):
            await self._large.begin_write(modern_writes.TOPICS_FORGOTTEN, deleted)

    async def alter_offsets(self, group_id: str, wanted: WantedOffsets) -> dict[tuple[bytes, int], GroupError]:
        """Handles AlterShareGroupOffsets for an empty group, which it creates if it does not exist.

        After an error the partitions stay marked as initializing, as in Kafka: a member's heartbeat initializes them
        when `group.share.initialize.retry.interval.ms` has passed (P-364).

        Args:
            group_id: the group.
            wanted: the new start offsets. Topics and partitions that do not exist are left out.

        Returns:
            The errors of partitions, by topic id and partition.

        Raises:
            GroupError: of the whole request.
        """
        alteration: Alteration = await self._administer(
            group_id,
            lambda shard, now_ms: shard.share.alter_offsets(group_id, shard.any_group(group_id), wanted, now_ms),
            refuses_at_once=True,
        )
        negative = [(i, number) for i, offsets in alteration.offsets.items() for number in offsets if number < 0]
        if negative:
            # Kafka's persister refuses negative offsets, and the partitions stay marked as initializing.
            message = f"{NEGATIVE_PARTITION} - {group_id} {uuid_to_text(negative[0][0])} {negative[0][1]}"
            raise GroupError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        partitions = {topic_id: frozenset(offsets) for topic_id, offsets in alteration.offsets.items()}
        return await self._initialize_from(
            Initialization(group_id, alteration.state_epoch, partitions), alteration.offsets
        )

    async def delete_offsets(
        self, group_id: str, names: Sequence[str]
    ) -> tuple[list[bytes], dict[bytes, ErrorCode], Sequence[tuple[str, ErrorCode, str | None]]]:
        """Handles DeleteShareGroupOffsets for an empty group.

        Returns:
            Ids of topics whose offsets are deleted; ids of topics whose state could not be deleted, with the error;
            topics that have no offsets, with the error and its text.

        Raises:
            GroupError: of the whole request.
        """
        deletion: Deletion = await self._administer(
            group_id,
            lambda shard, now_ms: shard.share.delete_offsets(group_id, shard.any_group(group_id), names),
            refuses_at_once=False,
        )
        failed: dict[bytes, ErrorCode] = {}
        for (topic_id, _), code in (await self._delete_partitions(group_id, deletion.partitions)).items():
            failed.setdefault(topic_id, code)
        deleted = [topic_id for topic_id in deletion.partitions if topic_id not in failed]
        if deleted:
            try:
                await self._runtime.write(
                    group_id, lambda shard, now_ms: shard.share.offsets_deleted(group_id, deleted)
                )
            except CoordinatorError as error:
                raise _group_error(error.error_code) from None
        return deleted, failed, deletion.errors

    async def _administer(
        self, group_id: str, operation: Callable[[GroupShard, int], GroupResult], *, refuses_at_once: bool
    ) -> Any:
        """Runs an operation on a share group that may refuse the request with GroupError; returns its response.

        As in Kafka, the refusal of a deletion waits for earlier records, too, and that of an alteration does not.
        """
        if not group_id:
            raise _group_error(ErrorCode.INVALID_GROUP_ID)

        def run(shard: GroupShard, now_ms: int) -> GroupResult:
            try:
                return operation(shard, now_ms)
            except GroupError as error:
                return GroupResult(response=error)

        try:
            write = self._runtime.begin_write(group_id, run)
            found = write.result.response
            if not (refuses_at_once and isinstance(found, GroupError)):
                await self._runtime.settled(group_id, write)
        except CoordinatorError as error:
            raise _group_error(error.error_code) from None
        if isinstance(found, GroupError):
            raise found
        return found

    def initialized_partitions(self, group_id: str) -> dict[bytes, frozenset[int]]:
        """Topic id -> partitions whose state exists; none for a group that does not exist.

        Raises:
            CoordinatorError: this broker does not coordinate the group.
        """
        _, shard = self._runtime.find(group_id)
        group = shard.share.by_id.get(group_id)
        return {} if group is None else {topic_id: state.partitions for topic_id, state in group.initialized.items()}

    async def summaries(
        self, group_id: str, partitions: Iterable[tuple[bytes, int]]
    ) -> dict[tuple[bytes, int], Summary | None]:
        """Start offset, leader epoch and delivery complete count of share partitions; None if they cannot be read."""
        found: dict[tuple[bytes, int], Summary | None] = {}

        async def read(topic_id: bytes, partition: int) -> None:
            found[topic_id, partition] = await self._states.read_summary(group_id, topic_id, partition)

        async with trio.open_nursery() as nursery:
            await start_in_turns(nursery, read, partitions)
        return found

    async def delete_states(self, group_id: str) -> ErrorCode:
        """Deletes the state of an empty share group's partitions, before the group itself is deleted.

        NONE for a group that is not a share group, NON_EMPTY_GROUP for one with members. Otherwise returns the share
        coordinator's error.

        Raises:
            CoordinatorError: an error of the group coordinator.
        """
        write = self._runtime.begin_write(group_id, lambda shard, now_ms: shard.share.begin_deletion(group_id))
        await self._runtime.settled(group_id, write)
        found: dict[bytes, frozenset[int]] | ErrorCode = write.result.response
        if isinstance(found, ErrorCode):
            return found
        if any(not numbers or min(numbers) < 0 for numbers in found.values()):
            # AlterShareGroupOffsets may have added topics without partitions, or with negative ones. Kafka's persister
            # refuses to delete them, with an error for each partition, so without any if there is no partition.
            return ErrorCode.UNKNOWN_SERVER_ERROR if any(found.values()) else ErrorCode.NONE
        errors = await self._delete_partitions(group_id, found)
        return next(iter(errors.values()), ErrorCode.NONE)

    async def _delete_partitions(
        self, group_id: str, topics: Mapping[bytes, frozenset[int]]
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """Deletes the state of share partitions; returns the errors, if there are any."""
        errors: dict[tuple[bytes, int], ErrorCode] = {}

        async def delete_one(topic_id: bytes, partition: int) -> None:
            code = await self._states.delete(group_id, topic_id, partition)
            if code is not ErrorCode.NONE:
                errors[topic_id, partition] = code

        async with trio.open_nursery() as nursery:
            calls = ((topic_id, number) for topic_id, numbers in topics.items() for number in sorted(numbers))
            await start_in_turns(nursery, delete_one, calls)
        return errors


def _group_error(code: ErrorCode) -> GroupError:
    return GroupError(code, TEXTS.get(code, code.name))
