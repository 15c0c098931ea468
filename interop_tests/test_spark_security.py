"""Spark's Kafka source and sink over SASL_SSL: settings of the Java client with `kafka.` before each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from interop_tests.brokers import BrokerProcess
from interop_tests.certificates import Authority
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import ACLS, JavaTools
from interop_tests.spark_io import QUERY_TIMEOUT_S, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.area("security"), pytest.mark.own_broker, pytest.mark.client("Spark")]

if shutil.which("openssl") is None:
    pytest.skip("needs the command line of OpenSSL", allow_module_level=True)

HOSTS = "DNS:localhost,IP:127.0.0.1"
USERS = {"alice": "open sesame", "bob": "let me in"}
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(start_broker: StartBroker, authority: Authority) -> BrokerProcess:
    """A broker with TLS, logins and an authorizer, which lets alice do everything."""
    return start_broker(
        "spark-sasl-ssl",
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("broker", hosts=HOSTS)),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:alice;User:ANONYMOUS",
        },
        users=USERS,
        protocol="SASL_SSL",
    )


def login(broker: BrokerProcess, authority: Authority, user: str, password: str) -> dict[str, str]:
    """Settings of a Java client."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def of_spark(settings: dict[str, str]) -> dict[str, str]:
    """The same as options of Spark."""
    return {f"kafka.{key}": value for key, value in settings.items()}


def test_batches_and_a_stream(
    spark: SparkSession, secured: BrokerProcess, authority: Authority, name: str, tmp_path: Path
) -> None:
    """Records are written and read in a batch, and copied by a stream that goes on from its checkpoint."""
    options = of_spark(login(secured, authority, "alice", USERS["alice"]))
    for start in (0, 100):
        numbers = spark.range(start, start + 100).selectExpr("CAST(id AS STRING) AS value")
        numbers.write.format("kafka").options(**options).option("topic", name).save()
        source = spark.readStream.format("kafka").options(**options, subscribe=name, startingOffsets="earliest").load()
        query = (
            source.select("key", "value")
            .writeStream.format("kafka")
            .options(**options, topic=f"{name}-copy", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the query did not end"
        assert query.exception() is None
        for topic in (name, f"{name}-copy"):
            frame = spark.read.format("kafka").options(**options, subscribe=topic).load()
            assert values(frame) == list(range(start + 100))


def test_a_wrong_password(spark: SparkSession, secured: BrokerProcess, authority: Authority, name: str) -> None:
    """The sink fails with the broker's text, and at once instead of after its time limit."""
    options = of_spark(login(secured, authority, "alice", "wrong"))
    frame = spark.range(1).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(Exception, match="Authentication failed: Invalid username or password"):
        frame.write.format("kafka").options(**options).option("topic", name).save()


def test_rights_of_a_user(
    spark: SparkSession, secured: BrokerProcess, authority: Authority, java_libs: Path, name: str, tmp_path: Path
) -> None:
    """A batch needs READ on the topic; Spark's executors have groups of their own, which need it as well."""
    alice = of_spark(login(secured, authority, "alice", USERS["alice"]))
    spark.range(10).selectExpr("CAST(id AS STRING) AS value").write.format("kafka").options(**alice).option(
        "topic", name
    ).save()
    bob = of_spark(login(secured, authority, "bob", USERS["bob"]))
    reader = spark.read.format("kafka").options(**bob, subscribe=name)
    with pytest.raises(Exception, match="TopicAuthorizationException"):
        values(reader.load())
    admin = tmp_path / "admin.properties"
    lines = login(secured, authority, "alice", USERS["alice"])
    admin.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    tools = JavaTools(java_libs, secured.bootstrap)
    grant = ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--command-config", str(admin))
    tools.check(ACLS, *grant, "--topic", name)
    tools.check(ACLS, *grant, "--group", "spark-kafka-", "--resource-pattern-type", "prefixed")
    assert values(reader.load()) == list(range(10))
