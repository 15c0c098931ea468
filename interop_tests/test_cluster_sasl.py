"""Three nodes that log in at one another: by SCRAM, OAUTHBEARER or GSSAPI at brokers, by PLAIN at controllers' ports,
and by GSSAPI at both, without TLS and with it.

The user of SCRAM is made by the format command, so that brokers can log in before anybody can make users.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from interop_tests.certificates import Authority
from interop_tests.clients import Message, confluent_consume, create_topic, kafka_python_produce
from interop_tests.cluster import Cluster
from interop_tests.conftest import StartCluster
from interop_tests.kerberos import Realm, missing_programs
from interop_tests.ports import free_ports
from interop_tests.wire import METADATA, Connection, ConnectionClosed, request_header

pytestmark = [pytest.mark.area("security"), pytest.mark.own_broker, pytest.mark.client("confluent-kafka")]

SCRAM, OAUTHBEARER, GSSAPI = "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"
GSSAPI_AT_BOTH, GSSAPI_WITH_TLS = "GSSAPI at both", "GSSAPI at both with TLS"
MODULES = "org.apache.kafka.common.security"
UNSECURED = f"{MODULES}.oauthbearer.internals.unsecured.OAuthBearerUnsecured"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{MODULES}.plain.PlainLoginModule required username="node" password="of-nodes" user_node="of-nodes";'
    ),
}
OF_MECHANISM = {
    SCRAM: {
        "listener.name.internal.scram-sha-512.sasl.jaas.config": (
            f'{MODULES}.scram.ScramLoginModule required username="broker" password="of-brokers";'
        ),
    },
    OAUTHBEARER: {
        "listener.name.internal.oauthbearer.sasl.jaas.config": (
            f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.internal.oauthbearer.sasl.login.callback.handler.class": f"{UNSECURED}LoginCallbackHandler",
        "listener.name.internal.oauthbearer.sasl.server.callback.handler.class": f"{UNSECURED}ValidatorCallbackHandler",
    },
}
USER = f"{SCRAM}=[name=broker,password=of-brokers]"


@pytest.fixture(scope="module")
def kerberos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings of nodes that share one principal of a realm, which has a KDC as long as the tests last."""
    pytest.importorskip("gssapi", reason="needs the package gssapi (see requirements/gssapi.txt)", exc_type=ImportError)
    if missing_programs():
        pytest.skip(f"needs MIT's Kerberos (Debian: krb5-kdc krb5-admin-server krb5-user), has no {missing_programs()}")
    realm = Realm(tmp_path_factory.mktemp("kerberos-cluster"))
    try:
        principal, key_table = realm.add(f"kafka/{realm.host}")
        module = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{key_table}" principal="{principal}";'
        )
        with pytest.MonkeyPatch.context() as patch:
            # Of the processes of nodes, whether they are in Python or in Java.
            patch.setenv("KRB5_CONFIG", str(realm.config))
            patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.config}")
            yield {
                "sasl.kerberos.service.name": "kafka",
                "listener.name.internal.gssapi.sasl.jaas.config": module,
                "listener.name.controller.gssapi.sasl.jaas.config": module,
            }
    finally:
        realm.close()


@pytest.fixture(scope="module", params=[SCRAM, OAUTHBEARER, GSSAPI, GSSAPI_AT_BOTH, GSSAPI_WITH_TLS])
def cluster(
    start_cluster: StartCluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Cluster:
    kind: str = request.param
    mechanism = GSSAPI if kind in (GSSAPI_AT_BOTH, GSSAPI_WITH_TLS) else kind
    of_mechanism = request.getfixturevalue("kerberos") if mechanism == GSSAPI else OF_MECHANISM[mechanism]
    settings = {
        **SETTINGS,
        **of_mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "listener.name.internal.sasl.enabled.mechanisms": mechanism,
    }
    authority: Authority | None = None
    if kind in (GSSAPI_AT_BOTH, GSSAPI_WITH_TLS):
        settings |= {
            "sasl.mechanism.controller.protocol": GSSAPI,
            "listener.name.controller.sasl.enabled.mechanisms": GSSAPI,
        }
    if kind == GSSAPI_WITH_TLS:
        authority = Authority(tmp_path_factory.mktemp("sasl-certificates"))
        settings |= {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_SSL,CONTROLLER:SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "ssl.keystore.type": "PEM",
        }

    def prepare(cluster: Cluster) -> None:
        for node, port in zip(cluster.nodes.values(), free_ports(len(cluster.nodes)), strict=True):
            listener = f"INTERNAL://127.0.0.1:{port}"
            for key in ("listeners", "advertised.listeners"):
                node.overrides[key] = f"{node.overrides[key]},{listener}"
            if authority is not None:
                certificate = authority.issue(f"node-{node.node_id}", hosts="IP:127.0.0.1,DNS:localhost")
                node.overrides["ssl.keystore.location"] = str(certificate)

    options = ("--add-scram", USER) if mechanism == SCRAM else ()
    name = f"sasl-{kind.lower().replace(' ', '-')}"
    return start_cluster(name, settings, prepare=prepare, format_options=options)


def ports_with_login(cluster: Cluster, node_id: int) -> list[str]:
    """Addresses of the listeners of brokers and controllers."""
    listeners = cluster.nodes[node_id].overrides["listeners"].split(",")
    return [address for name, _, address in (each.partition("://") for each in listeners) if name != "PLAINTEXT"]


@pytest.mark.fault("none")
def test_ports_of_nodes_need_a_login(cluster: Cluster) -> None:
    for node_id in cluster.nodes:
        addresses = ports_with_login(cluster, node_id)
        assert len(addresses) == 2
        for address in addresses:
            with Connection(address) as connection, pytest.raises((ConnectionClosed, ConnectionResetError)):
                connection.exchange(request_header(METADATA, 4) + struct.pack(">i", 0) + b"\0")


@pytest.mark.fault("kill -9")
def test_a_killed_node_logs_in_again(cluster: Cluster) -> None:
    """Records are acknowledged by all, then without a node, which catches up when it is back; the rest is in order."""
    bootstrap = cluster.nodes[1].bootstrap
    topic = create_topic(bootstrap, "caught-up", 3, replicas=3, min_insync_replicas="2")
    cluster.wait_until_whole()
    first = [b"before%d" % number for number in range(100)]
    kafka_python_produce(bootstrap, topic, [Message(None, value) for value in first])
    cluster.nodes[3].kill()
    more = [b"without%d" % number for number in range(1000)]
    kafka_python_produce(bootstrap, topic, [Message(None, value) for value in more])
    cluster.nodes[3].start()
    cluster.wait_until_whole()
    # Also from the node that was away.
    cluster.nodes[2].kill()
    cluster.wait_until_whole()
    found = [record.value or b"" for record in confluent_consume(cluster.nodes[3].bootstrap, [topic])]
    assert sorted(found) == sorted(first + more)
    cluster.nodes[2].start()
