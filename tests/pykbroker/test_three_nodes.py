"""Whole nodes of one cluster on simulated machines: they find one another, and each serves what any of them can do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from pykbroker.config.jaas import PLAIN_MODULE
from pykbroker.config.validation.security import AVAILABLE_AUTHORIZER
from pykbroker.config.values import NodeLogin
from pykbroker.controller.node_client import NodeAddress, NodeClient, NodeUnreachable
from pykbroker.protocol.error_codes import ErrorCode
from pykbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from pykbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pykbroker.protocol.messages.describe_cluster import DescribeClusterRequest
from pykbroker.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from pykbroker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from pykbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pykbroker.security.sasl_client import with_login
from pykbroker.security.scram import HASHES, MECHANISM_NUMBERS, salted_password
from tests.simulation.client import PORT
from tests.simulation.cluster import CONTROLLER_PORT, SETTINGS, shape_of
from tests.simulation.world import RuleBroken, World
from tests.support.in_place import run_in_place

TOPIC, BROKER = 2, 4


class Cluster:
    """Machines of a kind (see `shape_of`), and a connection to each broker."""

    def __init__(self, kind: str, *, cluster_id: str | None = None, **more: str) -> None:
        self.login: tuple[str, str] | None = None
        self.mechanism = "PLAIN"
        self.lines: list[str] = []
        self.world = World(f"{kind}-1", self.lines.append)
        self.world.cluster_id = cluster_id  # type: ignore[assignment]
        self.shape = shape_of(f"{kind}-1")
        self.world.network.add("client")
        for name, settings in self.shape.settings.items():
            changed = {key.replace("_", "."): text for key, text in more.items()}
            self.world.add_machine(name, {**settings, "auto.create.topics.enable": "true", **changed})
        self.world.broker_names.update(self.shape.brokers)

    def run(self, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
        async def play() -> None:
            for machine in self.world.machines.values():
                machine.start()
            await self.until(lambda: all(machine.is_ready for machine in self.world.machines.values()))
            await scenario(self)

        self.world.run(play)

    async def until(self, condition: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not condition():
                await trio.sleep(0.01)

    async def ask(self, node_id: int, request: Any, *, port: int = PORT) -> Any:
        opener = self.world.network.opener_of("client")
        if self.login is not None:
            user, password = self.login
            login = NodeLogin(self.mechanism, {"username": user, "password": password})
            # A real thread would take real time, of which the virtual clock knows nothing.
            opener = with_login(opener, login, run_in_thread=run_in_place)
        client = NodeClient(NodeAddress(f"n{node_id}", port), opener, client_id="test", software_version="1")
        try:
            return await client.request(request, 20_000)
        finally:
            await client.close()

    async def accepts_login(self, node_id: int) -> None:
        """Waits until a node knows the credential, which the active controller has answered for."""
        with trio.fail_after(30):
            while True:
                try:
                    await self.topics(node_id)
                except NodeUnreachable:
                    await trio.sleep(0.05)
                else:
                    return

    async def create(self, node_id: int, name: str, replicas: int = 3) -> int:
        topic = CreatableTopic(name=name, num_partitions=3, replication_factor=replicas)
        answer = await self.ask(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        code: int = answer.topics[0].error_code
        return code

    async def topics(self, node_id: int) -> dict[str, Any]:
        answer = await self.ask(node_id, MetadataRequest(topics=None))
        return {topic.name: topic for topic in answer.topics}

    async def controller(self, node_id: int) -> int:
        leader: int = (await self.quorum(node_id)).leader_id
        return leader

    async def quorum(self, node_id: int) -> Any:
        asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        return (await self.ask(node_id, DescribeQuorumRequest(topics=[asked]))).topics[0].partitions[0]


def test_every_node_takes_commands_also_after_the_active_controller_died() -> None:
    async def scenario(cluster: Cluster) -> None:
        for node_id in (1, 2, 3):
            assert await cluster.create(node_id, f"by-{node_id}") == 0
        died = await cluster.controller(1)
        cluster.world.machines[f"n{died}"].kill()
        left = [node_id for node_id in (1, 2, 3) if node_id != died]
        for node_id in left:
            assert await cluster.create(node_id, f"later-{node_id}", 2) == 0
            assert await cluster.create(node_id, f"later-{node_id}", 2) == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await cluster.controller(left[0]) in left
        for node_id in left:
            await trio.sleep(1)
            assert len(await cluster.topics(node_id)) == 5

    Cluster("three").run(scenario)


def test_the_high_watermark_of_an_idle_quorum_moves() -> None:
    """`metadata.max.idle.interval.ms`, 500 by default: 20 empty records in 10 s, also after the leader has died."""

    async def moves(cluster: Cluster, node_id: int, down: int) -> None:
        before = await cluster.quorum(node_id)
        await trio.sleep(10)
        after = await cluster.quorum(node_id)
        assert after.high_watermark - before.high_watermark == pytest.approx(20, abs=2)
        ends = {voter.replica_id: voter.log_end_offset for voter in after.current_voters}
        assert all(end > before.high_watermark for voter, end in ends.items() if voter != down)

    async def scenario(cluster: Cluster) -> None:
        await moves(cluster, 1, down=0)
        died = await cluster.controller(1)
        cluster.world.machines[f"n{died}"].kill()
        left = next(node_id for node_id in (1, 2, 3) if node_id != died)
        await cluster.create(left, "t", 2)
        await moves(cluster, left, down=died)

    Cluster("three", metadata_max_idle_interval_ms="500").run(scenario)


def test_nodes_with_empty_directories_agree_on_a_cluster_id() -> None:
    ids: list[set[str]] = []

    async def scenario(cluster: Cluster) -> None:
        found = {(await cluster.ask(node, DescribeClusterRequest())).cluster_id for node in cluster.shape.brokers}
        ids.append(found)

    Cluster("three").run(scenario)
    Cluster("apart").run(scenario)
    Cluster("three", cluster_id="MkU3OEVBNTcwNTJENDM2Qk").run(scenario)
    assert [len(found) for found in ids] == [1, 1, 1]
    assert ids[0] != ids[1]
    assert ids[2] == {"MkU3OEVBNTcwNTJENDM2Qk"}


def test_brokers_apart_from_their_controllers() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        topics = await cluster.topics(2)
        assert {replica for partition in topics["t"].partitions for replica in partition.replica_nodes} == {1, 2, 3}
        brokers = (await cluster.ask(3, DescribeClusterRequest())).brokers
        assert [broker.broker_id for broker in brokers] == [1, 2, 3]
        # A controller has a port for nodes and no other.
        with pytest.raises(NodeUnreachable):
            await cluster.ask(101, MetadataRequest(topics=None))
        controllers = await cluster.ask(101, DescribeClusterRequest(endpoint_type=2), port=9093)
        assert controllers.controller_id in (101, 102, 103)

    Cluster("apart").run(scenario)


def test_what_a_broker_itself_asks_of_the_controller() -> None:
    """Producer ids and topics that are made on demand, at brokers whose process does not lead."""

    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.controller(1)
        others = [node_id for node_id in (1, 2, 3) if node_id != leader]
        ids = []
        for node_id in (1, 2, 3):
            answer = await cluster.ask(node_id, InitProducerIdRequest(transactional_id=None))
            assert answer.error_code == 0
            ids.append(answer.producer_id)
        assert len({producer_id // 1000 for producer_id in ids}) == 3
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True)
        await cluster.ask(others[0], wanted)
        await trio.sleep(0.5)
        assert (await cluster.ask(others[1], wanted)).topics[0].error_code == 0

    Cluster("three").run(scenario)


def test_settings_are_changed_through_any_node() -> None:
    """The broker whose settings they are judges them, the controller stores them."""

    def change(kind: int, name: str, key: str, value: str) -> AlterConfigsResource:
        return AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[AlterableConfig(name=key, config_operation=0, value=value)]
        )

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        leader = await cluster.controller(1)
        other = next(node_id for node_id in (1, 2, 3) if node_id != leader)
        answer = await cluster.ask(
            other,
            IncrementalAlterConfigsRequest(
                resources=[
                    change(TOPIC, "t", "retention.ms", "1000"),
                    change(TOPIC, "gone", "retention.ms", "1000"),
                    change(BROKER, str(leader), "log.cleaner.threads", "2"),
                    change(BROKER, str(other), "log.cleaner.threads", "2"),
                ]
            ),
        )
        codes = [response.error_code for response in answer.responses]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REQUEST, 0]
        await trio.sleep(0.5)
        described = await cluster.ask(
            leader,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
                ]
            ),
        )
        assert described.results[0].configs[0].value == "1000"

    Cluster("three").run(scenario)


def test_a_broker_that_died_is_fenced_and_comes_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        async def alive() -> list[int]:
            return [broker.broker_id for broker in (await cluster.ask(asked, DescribeClusterRequest())).brokers]

        dead = await cluster.controller(1) % 3 + 1
        asked = dead % 3 + 1
        machine = cluster.world.machines[f"n{dead}"]
        machine.kill()
        session_s = int(SETTINGS["broker.session.timeout.ms"]) / 1000
        await trio.sleep(session_s + 1)
        assert await alive() == [node_id for node_id in (1, 2, 3) if node_id != dead]
        fenced = await cluster.ask(asked, DescribeClusterRequest(include_fenced_brokers=True))
        assert [broker.broker_id for broker in fenced.brokers if broker.is_fenced] == [dead]
        machine.start()
        await cluster.until(lambda: machine.is_ready)
        await trio.sleep(0.5)
        assert await alive() == [1, 2, 3]

    Cluster("three").run(scenario)


def test_a_broker_that_stops_in_order_leads_nothing_when_it_goes() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        await trio.sleep(1)
        going = await cluster.controller(1)
        asked = going % 3 + 1
        with trio.fail_after(10):
            await cluster.world.machines[f"n{going}"].stop()
        # No session has to expire, and no election timeout to pass.
        topic = (await cluster.topics(asked))["t"]
        leaders = {partition.leader_id for partition in topic.partitions}
        assert leaders == {1, 2, 3} - {going}
        assert {node for partition in topic.partitions for node in partition.isr_nodes} == leaders

    Cluster("three").run(scenario)


def test_a_topic_of_three_replicas_is_made_while_a_broker_is_stopped() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "before") == 0
        await trio.sleep(1)
        going = await cluster.controller(1) % 3 + 1
        asked = going % 3 + 1
        with trio.fail_after(10):
            await cluster.world.machines[f"n{going}"].stop()
        assert await cluster.create(asked, "t") == 0
        topic = (await cluster.topics(asked))["t"]
        assert all(going in partition.replica_nodes for partition in topic.partitions)
        assert all(going not in partition.isr_nodes for partition in topic.partitions)

    Cluster("three").run(scenario)


def test_the_only_voter_moves_its_leaderships_before_it_stops() -> None:
    """Nobody could do it afterwards: the brokers that are left have no controller."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(2, "t") == 0
        await trio.sleep(1)
        before = (await cluster.topics(2))["t"]
        assert 1 in {partition.leader_id for partition in before.partitions}
        with trio.fail_after(10):
            await cluster.world.machines["n1"].stop()
        for asked in (2, 3):
            topic = (await cluster.topics(asked))["t"]
            assert {partition.leader_id for partition in topic.partitions} == {2, 3}
            assert all(sorted(partition.isr_nodes) == [2, 3] for partition in topic.partitions)
        machine = cluster.world.machines["n1"]
        machine.start()
        await cluster.until(lambda: machine.is_ready)
        await trio.sleep(2)
        topic = (await cluster.topics(3))["t"]
        assert all(sorted(partition.isr_nodes) == [1, 2, 3] for partition in topic.partitions)

    Cluster("sole").run(scenario)


def test_a_broker_of_another_cluster_is_not_let_in() -> None:
    cluster = Cluster("apart")
    stranger = cluster.world.machines["n1"]

    async def play() -> None:
        for name, machine in cluster.world.machines.items():
            cluster.world.cluster_id = "MkU3OEVBNTcwNTJENDM2Qk" if name == "n1" else None  # type: ignore[assignment]
            machine.start()
            await trio.sleep(0.01)
        await cluster.until(lambda: all(cluster.world.machines[name].is_ready for name in ("n2", "n3")))
        await trio.sleep(0.5)
        assert [broker.broker_id for broker in (await cluster.ask(2, DescribeClusterRequest())).brokers] == [2, 3]
        await trio.sleep(70)

    with pytest.raises(RuleBroken, match="RegistrationFailed: broker 1 could not register within 60000 ms"):
        cluster.world.run(play)
    assert not stranger.is_up
    assert any(
        "belongs to another cluster; this node belongs to MkU3OEVBNTcwNTJENDM2Qk" in line for line in cluster.lines
    )


def test_a_broker_whose_controllers_are_away() -> None:
    cluster = Cluster("apart")

    async def play() -> None:
        cluster.world.machines["n1"].start()
        await trio.sleep(70)

    with pytest.raises(RuleBroken, match="ClusterUnknown: no controller answered with the cluster id: n103:9093: "):
        cluster.world.run(play)


def test_a_broker_gives_up_in_the_middle_of_a_request() -> None:
    """P-673: while no controller answers, a request of the broker lasts longer than what is left of its time."""
    cluster = Cluster("apart")

    async def play() -> None:
        cluster.world.cluster_id = "MkU3OEVBNTcwNTJENDM2Qk"
        cluster.world.machines["n1"].start()
        await trio.sleep(60.5)

    with pytest.raises(RuleBroken, match="RegistrationFailed: broker 1 could not register within 60000 ms"):
        cluster.world.run(play)


def test_a_controllers_port_closes_idle_connections_and_trims_its_log() -> None:
    async def scenario(cluster: Cluster) -> None:
        opener = cluster.world.network.opener_of("client")
        stream = await opener("n101", 9093)
        assert await cluster.create(1, "t") == 0
        await trio.sleep(2)
        life = cluster.world.machines["n101"]._life
        assert life is not None
        log = life.mount.read_file("/data/__cluster_metadata-0/00000000000000000000.log")
        assert log is not None
        assert not log.endswith(bytes(61))
        with trio.fail_after(10):
            assert await stream.receive_some(1) == b""

    Cluster("apart", connections_max_idle_ms="5000").run(scenario)


def test_a_controller_that_stands_still_holds_nobody_up() -> None:
    """Its connections stay open. Whoever asked it asks the next one as soon as there is one."""

    async def scenario(cluster: Cluster) -> None:
        stuck = await cluster.controller(1)
        other = stuck % 3 + 1
        # So that the broker has a connection which has been good so far.
        assert await cluster.create(other, "before") == 0
        cluster.world.machines[f"n{stuck}"].pause(25.0)
        began = trio.current_time()
        assert await cluster.create(other, "after", 2) == 0
        assert trio.current_time() - began < 5

    Cluster("three").run(scenario)


def test_nodes_that_stood_still_together_are_in_good_standing() -> None:
    """As on a machine that is busy or was suspended: nobody was silent, so none is fenced, replaced or out of sync."""

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(1, "t") == 0
        epoch = (await cluster.quorum(1)).leader_epoch
        await trio.sleep(5)
        cluster.lines.clear()
        for stall_s in (0.5, 0.9, 1.4, 1.5, 1.6, 1.7, 1.8, 2.2, 7.0):
            for machine in cluster.world.machines.values():
                machine.pause(stall_s)
            await trio.sleep(stall_s + 1.3)
        assert [(await cluster.quorum(node_id)).leader_epoch for node_id in (1, 2, 3)] == [epoch] * 3
        for partition in (await cluster.topics(1))["t"].partitions:
            assert (partition.leader_epoch, sorted(partition.isr_nodes)) == (0, [1, 2, 3])
        assert not [line for line in cluster.lines if "fencing" in line or "in-sync set" in line]
        assert any("this process did not run" in line for line in cluster.lines)

    Cluster("three").run(scenario)


def test_a_command_at_a_leader_that_is_cut_off_ends_at_its_successor() -> None:
    """The old leader resigns when nobody follows it any more; its client waits for the new one, and is not told."""

    async def scenario(cluster: Cluster) -> None:
        old = await cluster.controller(1)
        network = cluster.world.network
        others = [f"n{node_id}" for node_id in (1, 2, 3) if node_id != old]
        for other in others:
            network.cut(f"n{old}", other)
            network.cut(other, f"n{old}")

        async def mend() -> None:
            await trio.sleep(5)
            network.mend_all()

        async def change() -> None:
            resource = AlterConfigsResource(
                resource_type=BROKER,
                resource_name="",
                configs=[AlterableConfig(name="log.cleaner.threads", config_operation=0, value="2")],
            )
            answer = await cluster.ask(old, IncrementalAlterConfigsRequest(resources=[resource]))
            assert answer.responses[0].error_code == 0

        async with trio.open_nursery() as nursery:
            nursery.start_soon(mend)
            nursery.start_soon(change)
            assert await cluster.create(old, "t", 2) == 0
        assert await cluster.controller(old) != old

    Cluster("three").run(scenario)


def test_nodes_log_in_at_one_another_and_clients_keep_their_names() -> None:
    """SASL on all listeners, an authorizer: what alice may not do she may not do through any node."""
    jaas = f'{PLAIN_MODULE} required username="node" password="a b\\"c" user_node="a b\\"c" user_alice="alice-secret";'
    cluster = Cluster(
        "three",
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        sasl_mechanism_controller_protocol="PLAIN",
        sasl_jaas_config=jaas,
        authorizer_class_name=AVAILABLE_AUTHORIZER,
        super_users="User:node",
    )
    cluster.login = ("node", 'a b"c')

    async def scenario(cluster: Cluster) -> None:
        for node_id in (1, 2, 3):
            assert await cluster.create(node_id, f"t{node_id}") == 0
        cluster.login = ("alice", "alice-secret")
        for node_id in (1, 2, 3):
            assert await cluster.create(node_id, f"a{node_id}") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        cluster.login = ("alice", "wrong")
        with pytest.raises(NodeUnreachable, match="Invalid username or password"):
            await cluster.create(1, "t")
        cluster.login = ("node", 'a b"c')
        # Longer than `replica.lag.time.max.ms`: the followers have logged in, too.
        await trio.sleep(4)
        topics = await cluster.topics(1)
        assert [len(partition.isr_nodes) for partition in topics["t1"].partitions] == [3, 3, 3]

    cluster.run(scenario)
    for machine in cluster.world.machines.values():
        assert not any("sasl" in key for key in machine.config.ineffective_keys)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_nodes_log_in_at_one_another_by_scram(mechanism: str) -> None:
    """Controllers with their own password, brokers with the credential in the metadata; sessions end after a second."""
    cluster = Cluster(
        "three",
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        sasl_enabled_mechanisms=mechanism,
        sasl_mechanism_inter_broker_protocol=mechanism,
        sasl_mechanism_controller_protocol=mechanism,
        sasl_jaas_config="org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="node" password="node-secret";',
        connections_max_reauth_ms="1000",
    )
    cluster.login, cluster.mechanism = ("node", "node-secret"), mechanism

    async def scenario(cluster: Cluster) -> None:
        number = MECHANISM_NUMBERS[mechanism]
        salted = salted_password(HASHES[mechanism], b"node-secret", b"salt", 4096)
        upsertion = ScramCredentialUpsertion(
            name="node", mechanism=number, iterations=4096, salt=b"salt", salted_password=salted
        )
        with pytest.raises(NodeUnreachable, match=f"invalid credentials with SASL mechanism {mechanism}"):
            await cluster.topics(1)
        for node_id in (1, 2, 3):
            request = AlterUserScramCredentialsRequest(upsertions=[upsertion])
            answer = await cluster.ask(node_id, request, port=CONTROLLER_PORT)
            if answer.results[0].error_code == 0:
                break
        else:
            pytest.fail("no controller is active")
        for node_id in (1, 2, 3):
            await cluster.accepts_login(node_id)
            assert await cluster.create(node_id, f"t{node_id}") == 0
        await trio.sleep(4)
        topics = await cluster.topics(1)
        assert [len(partition.isr_nodes) for partition in topics["t1"].partitions] == [3, 3, 3]
        cluster.login = ("node", "wrong")
        with pytest.raises(NodeUnreachable, match="invalid credentials"):
            await cluster.topics(1)

    cluster.run(scenario)
    for machine in cluster.world.machines.values():
        assert not machine.config.ineffective_keys


def test_nodes_log_in_at_one_another_by_oauthbearer() -> None:
    """Unsigned tokens that each node makes for its logins; its sessions end with them, after two seconds."""
    cluster = Cluster(
        "three",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER",
        sasl_mechanism_controller_protocol="OAUTHBEARER",
        sasl_jaas_config="org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="node" unsecuredLoginLifetimeSeconds="2";',
    )

    async def scenario(cluster: Cluster) -> None:
        for node_id in (1, 2, 3):
            assert await cluster.create(node_id, f"t{node_id}") == 0
        await trio.sleep(4)
        assert await cluster.create(1, "later") == 0

    cluster.run(scenario)
