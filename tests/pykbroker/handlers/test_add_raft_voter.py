"""AddRaftVoter, as far as the handler decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykbroker.handlers.add_raft_voter import handle_add_raft_voter
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener


async def test_the_last_endpoint_of_a_listener_counts() -> None:
    """They come in the order of Java's hash table; the text is Apache Kafka's own for this request."""
    config = SimpleNamespace(network=SimpleNamespace(controller_listener="CONTROLLER"))
    services = SimpleNamespace(controller=SimpleNamespace(is_leader=True), cluster_id="c", config=config)
    context: Any = SimpleNamespace(services=services, require_cluster=lambda operation: None)
    listeners = [
        Listener(name=n, host="y", port=p) for n, p in (("d18744-t0", 0), ("d18744-t1", 1), ("d18744-t1", 65535))
    ]
    request = AddRaftVoterRequest(cluster_id="c", voter_id=100, voter_directory_id=b"U" * 16, listeners=listeners)
    answer = await handle_add_raft_voter(context, request)
    text = (
        "Add voter request didn't include the endpoint (Endpoints(endpoints={ListenerName(D18744-T1)="
        "y/<unresolved>:65535, ListenerName(D18744-T0)=y/<unresolved>:0})) for the default listener "
        "ListenerName(CONTROLLER)"
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)
