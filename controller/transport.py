"""Transport: the way from a node to the other nodes of its quorum. The base class is that of a node without others."""

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
"""Gives a message to the state machine of this node."""


class NoResponse(Exception):
    """A node cannot be asked, or its response is an error."""


class Transport:
    """See the module's text. `PeerLinks` is the one over connections."""

    can_download = False
    """True if `download` can succeed at all; a node that cannot download goes on fetching."""

    def send(self, envelope: Envelope) -> None:
        """Sends a message, or drops it: raft repeats what matters."""

    def set_voters(self, voters: VoterSet) -> None:
        """Called with the voters, first and whenever they change: they say where voters listen."""

    async def supported_versions(self, voter: Voter) -> KRaftVersions | None:
        """The kraft.versions that a node supports, None if it names none.

        Raises:
            NoResponse: it does not respond.
        """
        raise NoResponse("this node knows no other")

    async def download(
        self, leader_id: int, epoch: int, snapshot: OffsetAndEpoch, replica: ReplicaKey, step: Step
    ) -> bytes:
        """The bytes of the leader's snapshot. `step` gets each progress, and the leader if a response names another.

        Raises:
            NoResponse: the leader does not have it, does not lead, or does not respond.
        """
        raise NoResponse("this node knows no other")
