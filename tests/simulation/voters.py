"""Voters that stand in the log (KIP-853): how the disks of such a cluster are formatted, and who changes the voters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykbroker.controller.formatting import write_first_voters
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from pykbroker.logstore.log_directory import LogDirectory
from pykbroker.logstore.meta_properties import MetaProperties
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from pykbroker.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from pykbroker.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from pykbroker.protocol.uuids import uuid_to_text
from tests.simulation.admin import Administrator
from tests.simulation.client import Client, Unreachable
from tests.simulation.history import History

if TYPE_CHECKING:
    from tests.simulation.machines import Machine

LISTENER = "CONTROLLER"
TOPIC = "__cluster_metadata"
CHANGE_TIMEOUT_MS = 3000


def voter_of(node_id: int, port: int) -> Voter:
    """A node as the log tells of it; its directory's id follows from its own."""
    key = ReplicaKey(node_id, b"directory" + node_id.to_bytes(7, "big"))
    return Voter(key, (VoterEndpoint(LISTENER, f"n{node_id}", port),), (0, 1))


def format_disk(machine: Machine, cluster_id: str, itself: Voter, first_voters: Iterable[Voter]) -> None:
    """Format the disk of a machine that has never run, as `pykbroker format` does."""
    mount = machine.disk.mount(lambda seconds: None, lambda: None)
    path = machine.config.log.dirs[0]
    directory = LogDirectory.open(path, filesystem=mount)
    voters = VoterSet(first_voters)
    if itself.key in voters:
        write_first_voters(mount, path, voters, machine.wall_clock_ms())
    node_id, directory_id = itself.key
    directory.format(MetaProperties(cluster_id, node_id, uuid_to_text(directory_id)))
    directory.abandon()
    mount.die()


class VoterAdministrator(Administrator[int]):
    """Adds and removes voters. What was acknowledged must be so at the end, unless it was asked for otherwise since."""

    WHAT = "voters"
    PAUSE_S = (0.1, 1.2)

    def __init__(self, client: Client, history: History, controllers: list[Voter], *, they_rejoin: bool) -> None:
        """`they_rejoin`: who is removed asks to be made a voter again (`controller.quorum.auto.join.enable`)."""
        super().__init__(client, history)
        self._controllers = controllers
        self._they_rejoin = they_rejoin
        # Of whom a request had no certain answer: it may be carried out at any time.
        self._uncertain: set[int] = set()

    async def _change(self) -> None:
        client = self._client
        voters = await self._there()
        voter = client.random.choice(self._controllers)
        node_id, directory_id = voter.key
        is_voter = node_id in voters
        if is_voter and len(voters) == 1:
            return
        is_uncertain = node_id in self._uncertain
        self._uncertain.add(node_id)
        self._expected.pop(node_id, None)
        if is_voter:
            what = f"remove voter {node_id}"
            removal = RemoveRaftVoterRequest(
                cluster_id=client.world.cluster_id, voter_id=node_id, voter_directory_id=directory_id
            )
            response = await client.call_any(removal, CHANGE_TIMEOUT_MS)
        else:
            what = f"add voter {node_id}"
            listeners = [Listener(name=name, host=host, port=port) for name, host, port in voter.endpoints]
            addition = AddRaftVoterRequest(
                cluster_id=client.world.cluster_id,
                timeout_ms=CHANGE_TIMEOUT_MS,
                voter_id=node_id,
                voter_directory_id=directory_id,
                listeners=listeners,
            )
            response = await client.call_any(addition, CHANGE_TIMEOUT_MS)
        client.say(f"{what}: {ErrorCode(response.error_code).name}")
        if response.error_code == ErrorCode.NONE:
            self._history.count("changes of voters")
            if not is_uncertain:
                self._uncertain.discard(node_id)
            if not is_uncertain and not (is_voter and self._they_rejoin):
                self._expected[node_id] = not is_voter

    async def _there(self) -> set[int]:
        topic = TopicData(topic_name=TOPIC, partitions=[PartitionData()])
        response = await self._client.call_any(DescribeQuorumRequest(topics=[topic]), CHANGE_TIMEOUT_MS)
        if response.error_code:
            raise Unreachable(f"no description of the quorum: {ErrorCode(response.error_code).name}")
        found = response.topics[0].partitions[0]
        if found.error_code:
            raise Unreachable(f"no description of the quorum: {ErrorCode(found.error_code).name}")
        return {voter.replica_id for voter in found.current_voters}
