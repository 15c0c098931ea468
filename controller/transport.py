"""Transport: messages from a node to the other nodes of its quorum. The base class is for a single node."""

from __future__ import annotations

from collections.abc import Callable

from pykbroker.controller.raft.local_messages import LocalMessage
from pykbroker.controller.raft.log_view import OffsetAndEpoch
from pykbroker.controller.raft.messages import Message
from pykbroker.controller.raft.output import Envelope
from pykbroker.controller.raft.quorum import ReplicaKey, Voter, VoterSet

KRaftVersions = tuple[int, int]
"""Lowest and highest kraft.version that a node supports."""

Step = Callable[[Message | LocalMessage], None]
"""Function that passes a message to the state machine of this node."""


class NoResponse(Exception):
    """A node cannot be reached, or its response is an error."""


class Transport:
    """Transport without other nodes; `PeerLinks` is the implementation over connections."""

    can_download = False
    """True if `download` is implemented; without it a node continues with Fetch requests."""

    def send(self, envelope: Envelope) -> None:
        """Sends a message or drops it: raft repeats messages that matter."""

    def set_voters(self, voters: VoterSet) -> None:
        """Sets the voters with their endpoints; called at the start and after each change."""

    async def supported_versions(self, voter: Voter) -> KRaftVersions | None:
        """Range of kraft.versions that a node supports; None if its response has none.

        Raises:
            NoResponse: the node does not respond.
        """
        raise NoResponse("this node has no connections to other nodes")

    async def download(
        self, leader_id: int, epoch: int, snapshot: OffsetAndEpoch, replica: ReplicaKey, step: Step
    ) -> bytes:
        """Bytes of the leader's snapshot. `step` gets a message for each piece, and for another leader in a response.

        Raises:
            NoResponse: the leader does not have it, does not lead, or does not respond.
        """
        raise NoResponse("this node has no connections to other nodes")
