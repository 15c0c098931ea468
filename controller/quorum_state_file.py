"""The `quorum-state` file with epoch, leader and vote of a replica, byte for byte as in Kafka.

Data version 0 is for a static quorum (kraft.version 0); version 1 has directory ids (KIP-853).
"""

from __future__ import annotations

import re

from pykbroker.controller.raft.output import QuorumState
from pykbroker.controller.raft.quorum import NO_DIRECTORY_ID, ReplicaKey, VoterSet
from pykbroker.logstore.errors import CorruptFile
from pykbroker.logstore.filesystem import FileSystem
from pykbroker.protocol.uuids import uuid_from_text, uuid_to_text

FILE_NAME = "quorum-state"

_FIELD = re.compile(r'"(\w+)"\s*:\s*(-?\d+|"[^"]*")')


def read_quorum_state(filesystem: FileSystem, directory: str) -> QuorumState | None:
    """Reads the quorum state, None if there is no file.

    Raises:
        CorruptFile: the file cannot be parsed. A node must not guess its vote.
    """
    path = f"{directory}/{FILE_NAME}"
    content = filesystem.read_file(path)
    if content is None:
        return None
    fields = {name: value.strip('"') for name, value in _FIELD.findall(content.decode("utf-8", "replace"))}
    try:
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise CorruptFile(path, f"data_version {version} is unknown; was it written by newer software?")
        voted_id = int(fields["votedId"])
        voted = None
        if voted_id >= 0:
            directory_id = uuid_from_text(fields["votedDirectoryId"]) if version == 1 else NO_DIRECTORY_ID
            voted = ReplicaKey(voted_id, directory_id)
        return QuorumState(int(fields["leaderEpoch"]), int(fields["leaderId"]), voted)
    except (KeyError, ValueError) as error:
        reason = f"no valid {error.args[0]}: it is damaged; where this is the only controller, delete it"
        raise CorruptFile(path, reason) from error


def write_quorum_state(
    filesystem: FileSystem, directory: str, state: QuorumState, voters: VoterSet, kraft_version: int
) -> None:
    """Replaces the file durably. Responses that depend on this state may be sent only afterwards."""
    voted = state.voted or ReplicaKey(-1)
    if kraft_version == 0:
        ids = ",".join(f'{{"voterId":{voter_id}}}' for voter_id in voters.ids)
        text = (
            f'{{"clusterId":"","leaderId":{state.leader_id},"leaderEpoch":{state.epoch},"votedId":{voted.node_id},'
            f'"appliedOffset":0,"currentVoters":[{ids}],"data_version":0}}'
        )
    else:
        text = (
            f'{{"leaderId":{state.leader_id},"leaderEpoch":{state.epoch},"votedId":{voted.node_id},'
            f'"votedDirectoryId":"{uuid_to_text(voted.directory_id)}","data_version":1}}'
        )
    filesystem.write_file(f"{directory}/{FILE_NAME}", text.encode())
