"""Golden transcripts of elections and replication: tests/transcripts/raft/*.txt.

A transcript is a list of blocks: a command line, a line of dashes, what happened. Lines with # are for the reader.
`PYKBROKER_REWRITE_TRANSCRIPTS=1 pytest tests/controller/raft/test_transcripts.py` writes them anew; commit only what
you can explain.

    voters 1 2 3 [observers 4] [seed 7] [lost_leader 100]
                     the cluster, with nothing started yet; lost_leader_ms is 0 unless given
    first_voters 1 [observers 2 3]   the same, with voters in the log (KIP-853)
    add 1 4 / remove 1 4   node 1 is asked to make node 4 a voter, or to remove it
    start 1 2 3      start nodes; also after a crash
    settle           deliver messages until there are none
    pass 1500        let so many ms go by, delivering what is sent
    propose 1 a b    records a and b in one batch, by node 1
    crash 1          node 1 stops without a word; what it persisted stays
    resign 1         node 1 gives up leadership in order
    cut 1 / mend 1   messages from and to node 1 are lost / are not
    refuse           from now on the machine of a node that is down refuses connections
    snapshot 1       node 1 replaces what is committed by a snapshot
    show             each node's role, epoch, log and high watermark
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pykbroker.controller.raft.local_messages import Resign
from tests.controller.raft.cluster import Cluster

FOLDER = Path(__file__).parents[2] / "transcripts" / "raft"
TRANSCRIPTS = sorted(FOLDER.glob("*.txt"))


class Interpreter:
    """Carries out the commands of one transcript."""

    def __init__(self) -> None:
        self.cluster = Cluster([1])

    def run(self, command: str) -> list[str]:
        verb, *words = command.split()
        if verb in ("voters", "first_voters"):
            self.cluster = self.build(words, is_dynamic=verb == "first_voters")
            return []
        cluster = self.cluster
        cluster.lines = []
        if verb == "settle":
            cluster.settle()
        elif verb == "pass":
            cluster.settle()
            cluster.advance(int(words[0]))
        elif verb == "propose":
            cluster.propose(int(words[0]), words[1:])
        elif verb == "add":
            cluster.add_voter(*map(int, words))
        elif verb == "remove":
            cluster.remove_voter(*map(int, words))
        elif verb == "refuse":
            cluster.refuses = True
        elif verb == "show":
            return [self.show(node_id) for node_id in cluster.members]
        else:
            for word in words:
                self.one(verb, int(word))
        return cluster.lines

    def build(self, words: list[str], *, is_dynamic: bool) -> Cluster:
        lists: dict[str, list[int]] = {"voters": [], "observers": [], "seed": [], "lost_leader": []}
        name = "voters"
        for word in words:
            if word in lists:
                name = word
                lists[name] = []
            else:
                lists[name].append(int(word))
        cluster = Cluster(lists["voters"], lists["observers"], seed=(lists["seed"] or [0])[0], is_dynamic=is_dynamic)
        cluster.settings = cluster.settings._replace(lost_leader_ms=(lists["lost_leader"] or [0])[0])
        return cluster

    def one(self, verb: str, node_id: int) -> None:
        cluster = self.cluster
        member = cluster.members[node_id]
        if verb == "start":
            member.start()
        elif verb == "crash":
            member.crash()
        elif verb == "resign":
            member.step(Resign())
        elif verb == "cut":
            cluster.cut_off.add(node_id)
        elif verb == "mend":
            cluster.cut_off.discard(node_id)
        elif verb == "snapshot":
            member.take_snapshot()
        else:
            raise AssertionError(f"unknown command {verb}")

    def show(self, node_id: int) -> str:
        member = self.cluster.members[node_id]
        log = " ".join(
            f"e{entries.epoch}:{'*' * len(entries.control) or ','.join(entries.payload)}" for entries in member.disk.log
        )
        if member.disk.snapshot.offset:
            log = f"[snapshot {member.disk.snapshot.offset}] {log}".rstrip()
        if member.core is None:
            return f"{node_id} down log {log}"
        core = member.core
        return f"{node_id} {core.role.value} e{core.epoch} leader {core.leader_id} hw {core.high_watermark} log {log}"


def interpret(text: str) -> str:
    """The transcript with what really happened in place of what was expected."""
    interpreter = Interpreter()
    output: list[str] = []
    is_expectation = False
    for line in text.splitlines():
        if line == "----":
            is_expectation = True
        elif not line:
            if is_expectation:
                output.append("")
            is_expectation = False
        elif line.startswith("#"):
            output.append(line)
        elif not is_expectation:
            output += [line, "----", *interpreter.run(line)]
    return "\n".join(output).rstrip() + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    found = interpret(text)
    if os.environ.get("PYKBROKER_REWRITE_TRANSCRIPTS"):
        path.write_text(found)
    assert found == path.read_text()
