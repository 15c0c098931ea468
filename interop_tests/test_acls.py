"""Authorization: kafka-acls and two admin clients on a broker with an authorizer, and what clients without rights get.

The broker's clients log in by SASL/PLAIN. `admin` is a super user; every test makes users of its own, in that it
grants rights to names that were given a password at the start (`alice` to `gina`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaPythonResourceType
from kafka.errors import ClusterAuthorizationFailedError, GroupAuthorizationFailedError, TopicAuthorizationFailedError

from interop_tests.brokers import BrokerProcess
from interop_tests.clients import wait_until
from interop_tests.conftest import StartBroker
from interop_tests.java_tools import ACLS, CONSOLE_PRODUCER, DUMP_LOG, GROUPS, TOPICS, JavaTools, Output

pytestmark = [pytest.mark.own_broker, pytest.mark.area("security")]

USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "carol", "dave", "erin", "frank", "gina")}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Apache Kafka's broker is a client of its controller, without a name.
    "super.users": "User:admin;User:ANONYMOUS",
}
# None is any name; the stubs of the library say that it must be a text.
ANYTHING: Any = None
ANY_TOPIC = AclBindingFilter(
    ResourceType.TOPIC, ANYTHING, ResourcePatternType.ANY, ANYTHING, ANYTHING, AclOperation.ANY, AclPermissionType.ANY
)


class Secured:
    """A broker with an authorizer, and clients of it by user name."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.broker = broker
        self._folder = folder

    def confluent(self, user: str, **more: Any) -> dict[str, Any]:
        """Settings for confluent-kafka."""
        return {
            "bootstrap.servers": self.broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
            **more,
        }

    def kafka_python(self, user: str, **more: Any) -> dict[str, Any]:
        """Settings for kafka-python."""
        return {
            "bootstrap_servers": self.broker.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": USERS[user],
            **more,
        }

    def java(self, user: str) -> str:
        """Path of a properties file for Java clients and tools."""
        path = self._folder / f"{user}.properties"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} required username="{user}" password="{USERS[user]}";\n'
        )
        return str(path)

    def grant(
        self,
        user: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
        *,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
        permission: AclPermissionType = AclPermissionType.ALLOW,
    ) -> None:
        """Adds one entry."""
        binding = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
        admin = AdminClient(self.confluent("admin"))
        (future,) = admin.create_acls([binding]).values()
        future.result(30)


@pytest.fixture(scope="module")
def secured(start_broker: StartBroker, tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(start_broker("acls", dict(AUTHORIZER), users=USERS), tmp_path_factory.mktemp("acls-clients"))


@pytest.fixture
def topic(secured: Secured, name: str) -> str:
    """A topic that only the super user may use."""
    admin = AdminClient(secured.confluent("admin"))
    (future,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
    future.result(30)
    return name


@pytest.fixture
def acls_tool(secured: Secured, java_libs: Path) -> Callable[..., Output]:
    """Runs kafka-acls as a user."""

    def run(user: str, *arguments: str) -> Output:
        tools = JavaTools(java_libs, secured.broker.bootstrap)
        return tools.run(ACLS, "--command-config", secured.java(user), *arguments)

    return run


def entries(output: Output) -> set[str]:
    """The lines of kafka-acls that describe entries."""
    return {line.strip() for line in output.lines if line.strip().startswith("(principal=")}


def entry(principal: str, operation: str, host: str = "*", permission: str = "ALLOW") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_kafka_acls_adds_lists_and_removes(acls_tool: Callable[..., Output], name: str) -> None:
    """--producer and --consumer, denying with a host, prefixes, --list by resource and principal, --remove."""
    producer = acls_tool("admin", "--add", "--allow-principal", "User:zoe", "--producer", "--topic", name)
    assert producer.returncode == 0, producer.stderr
    denying = ("--deny-principal", "User:zoe", "--deny-host", "10.0.0.1", "--operation", "Read", "--topic", name)
    assert acls_tool("admin", "--add", *denying).returncode == 0
    consuming = ("--allow-principal", "User:zia", "--consumer", "--group", name, "--topic", name)
    assert acls_tool("admin", "--add", *consuming).returncode == 0
    prefixed = ("--allow-principal", "User:zed", "--operation", "All", "--topic", name[:-1])
    assert acls_tool("admin", "--add", *prefixed, "--resource-pattern-type", "prefixed").returncode == 0
    listed = acls_tool("admin", "--list", "--topic", name)
    expected = {entry("User:zoe", operation) for operation in ("WRITE", "DESCRIBE", "CREATE")}
    expected |= {entry("User:zia", operation) for operation in ("READ", "DESCRIBE")}
    expected.add(entry("User:zoe", "READ", "10.0.0.1", "DENY"))
    assert entries(listed) == expected
    assert f"`ResourcePattern(resourceType=TOPIC, name={name}, patternType=LITERAL)`" in listed.stdout
    matching = acls_tool("admin", "--list", "--topic", name, "--resource-pattern-type", "match")
    assert entries(matching) == {*expected, entry("User:zed", "ALL")}
    assert entries(acls_tool("admin", "--list", "--group", name)) == {entry("User:zia", "READ")}
    by_principal = acls_tool("admin", "--list", "--principal", "User:zed")
    assert entries(by_principal) == {entry("User:zed", "ALL")}
    assert acls_tool("admin", "--remove", "--force", "--topic", name).returncode == 0
    assert entries(acls_tool("admin", "--list", "--topic", name)) == set()
    removed = ("--topic", name[:-1], "--resource-pattern-type", "prefixed")
    assert acls_tool("admin", "--remove", "--force", *removed).returncode == 0


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_kafka_acls_without_rights(acls_tool: Callable[..., Output], name: str) -> None:
    """Without DESCRIBE on the cluster the tool does nothing, as it lists what there is in any case; it says so."""
    for arguments in (
        ("--list",),
        ("--add", "--allow-principal", "User:frank", "--operation", "All", "--topic", name),
        ("--remove", "--force", "--topic", name),
    ):
        output = acls_tool("frank", *arguments)
        text = output.stdout + output.stderr
        assert "ClusterAuthorizationException" in text, text
        assert re.search(r"Request .* needs (DESCRIBE|ALTER) permission", text), text
    assert entries(acls_tool("admin", "--list", "--topic", name)) == set()


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_java_clients_without_rights(secured: Secured, java_libs: Path, topic: str) -> None:
    """A producer gets TopicAuthorizationException; kafka-topics and kafka-groups show what the user may see."""
    tools = JavaTools(java_libs, secured.broker.bootstrap)
    config = secured.java("frank")
    producing = ("--topic", topic, "--command-config", config)
    output = tools.run(CONSOLE_PRODUCER, *producing, stdin="x\n")
    text = output.stdout + output.stderr
    assert f"Not authorized to access topics: [{topic}]" in text, text
    listed = tools.check(TOPICS, "--list", "--command-config", config)
    assert listed.lines == []
    assert len(tools.check(GROUPS, "--list", "--command-config", config).lines) == 1, "a heading"
    created = tools.run(TOPICS, "--create", "--topic", f"{topic}-2", "--partitions", "1", "--command-config", config)
    assert "Authorization failed." in created.stdout + created.stderr


@pytest.mark.client("confluent-kafka")
def test_confluent_admin(secured: Secured, name: str) -> None:
    """create_acls, describe_acls by several filters, delete_acls; an entry that is there already is no error."""
    admin = AdminClient(secured.confluent("admin"))
    principal = f"User:{name}"
    allow, deny = AclPermissionType.ALLOW, AclPermissionType.DENY
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    bindings = [
        AclBinding(ResourceType.TOPIC, name, literal, principal, "*", AclOperation.READ, allow),
        AclBinding(ResourceType.TOPIC, name[:-1], prefixed, principal, "10.0.0.1", AclOperation.WRITE, deny),
        AclBinding(ResourceType.GROUP, "*", literal, principal, "*", AclOperation.ALL, allow),
        AclBinding(ResourceType.BROKER, "kafka-cluster", literal, principal, "*", AclOperation.ALTER, allow),
        AclBinding(ResourceType.TRANSACTIONAL_ID, name, literal, principal, "*", AclOperation.DESCRIBE, allow),
    ]
    for _ in range(2):
        for future in admin.create_acls(bindings).values():
            future.result(30)

    def described(kind: ResourceType, resource: str | None, pattern: ResourcePatternType) -> set[AclBinding]:
        any_operation, any_permission = AclOperation.ANY, AclPermissionType.ANY
        wanted = AclBindingFilter(
            kind, resource or ANYTHING, pattern, principal, ANYTHING, any_operation, any_permission
        )
        return set(admin.describe_acls(wanted).result(30))

    wait_until(lambda: described(ResourceType.ANY, None, ResourcePatternType.ANY) == set(bindings), "all entries")
    assert described(ResourceType.TOPIC, name, ResourcePatternType.ANY) == {bindings[0]}
    assert described(ResourceType.TOPIC, name, ResourcePatternType.MATCH) == set(bindings[:2])
    assert described(ResourceType.GROUP, "whichever", ResourcePatternType.MATCH) == {bindings[2]}
    assert described(ResourceType.TOPIC, None, prefixed) == {bindings[1]}
    everything = AclBindingFilter(
        ResourceType.ANY,
        ANYTHING,
        ResourcePatternType.ANY,
        principal,
        ANYTHING,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    (deleted,) = admin.delete_acls([everything]).values()
    assert set(deleted.result(30)) == set(bindings)
    wait_until(lambda: not described(ResourceType.ANY, None, ResourcePatternType.ANY), "their end")


@pytest.mark.client("confluent-kafka")
def test_bad_entries_are_refused(secured: Secured, name: str) -> None:
    """Principals without a type, other names of the cluster, and requests of users without rights."""
    admin = AdminClient(secured.confluent("admin"))

    def refusal(client: AdminClient, kind: ResourceType, resource: str, principal: str) -> KafkaError:
        operation, permission = AclOperation.DESCRIBE, AclPermissionType.ALLOW
        binding = AclBinding(kind, resource, ResourcePatternType.LITERAL, principal, "*", operation, permission)
        (future,) = client.create_acls([binding]).values()
        with pytest.raises(KafkaException) as caught:
            future.result(30)
        error: KafkaError = caught.value.args[0]
        return error

    error = refusal(admin, ResourceType.TOPIC, name, "zoe")
    assert error.code() == KafkaError.INVALID_REQUEST
    assert "Could not parse principal from `zoe`" in error.str()
    error = refusal(admin, ResourceType.BROKER, "my-cluster", "User:zoe")
    assert error.str() == "The only valid name for the CLUSTER resource is kafka-cluster"
    frank = AdminClient(secured.confluent("frank"))
    assert refusal(frank, ResourceType.TOPIC, name, "User:zoe").code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.client("kafka-python")
def test_kafka_python_admin(secured: Secured, name: str) -> None:
    """create_acls, describe_acls, delete_acls; describing needs DESCRIBE on the cluster."""
    admin = KafkaAdminClient(**secured.kafka_python("admin"))
    frank = KafkaAdminClient(**secured.kafka_python("frank"))
    try:
        acl = ACL(
            principal=f"User:{name}",
            host="*",
            operation=ACLOperation.READ,
            permission_type=ACLPermissionType.ALLOW,
            resource_pattern=ResourcePattern(KafkaPythonResourceType.TOPIC, name),
        )
        result = admin.create_acls([acl])
        assert (result["succeeded"], result["failed"]) == ([acl], [])
        wanted = ACLFilter(
            principal=f"User:{name}",
            host=None,
            operation=ACLOperation.ANY,
            permission_type=ACLPermissionType.ANY,
            resource_pattern=ResourcePatternFilter(KafkaPythonResourceType.ANY, None, ACLResourcePatternType.ANY),
        )
        wait_until(lambda: admin.describe_acls(wanted)[0] == [acl], "the entry")
        with pytest.raises(ClusterAuthorizationFailedError):
            frank.describe_acls(wanted)
        ((_, deleted, error),) = admin.delete_acls([wanted])
        assert error is kafka.errors.NoError
        assert deleted == [acl]
        wait_until(lambda: admin.describe_acls(wanted)[0] == [], "its end")
    finally:
        frank.close()
        admin.close()


@pytest.mark.client("kafka-python")
def test_kafka_python_clients_get_and_lose_rights(secured: Secured, topic: str, name: str) -> None:
    """Producer and group member are refused, work once they are granted what they need, and are refused again."""
    producer = kafka.KafkaProducer(**secured.kafka_python("alice", enable_idempotence=False, max_block_ms=5000))
    consumer = kafka.KafkaConsumer(
        topic,
        **secured.kafka_python("bob", group_id=name, auto_offset_reset="earliest", consumer_timeout_ms=1000),
    )
    try:
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"x").get(10)
        secured.grant("alice", AclOperation.WRITE, ResourceType.TOPIC, topic)

        def is_sent() -> bool:
            try:
                producer.send(topic, b"x").get(10)
            except TopicAuthorizationFailedError:
                return False
            return True

        wait_until(is_sent, "the right to write")

        def is_refused() -> bool:
            try:
                # Ends without an error when the first answer does not come within consumer_timeout_ms.
                assert list(consumer) == []
            except (TopicAuthorizationFailedError, GroupAuthorizationFailedError):
                return True
            return False

        wait_until(is_refused, "the refusal")
        secured.grant("bob", AclOperation.READ, ResourceType.TOPIC, topic)
        secured.grant("bob", AclOperation.READ, ResourceType.GROUP, name)
        received: list[Any] = []

        def is_received() -> bool:
            try:
                received.extend(consumer)
            except (TopicAuthorizationFailedError, GroupAuthorizationFailedError):
                return False
            return bool(received)

        wait_until(is_received, "the record")
        assert received[0].value == b"x"
        secured.grant("alice", AclOperation.WRITE, ResourceType.TOPIC, topic, permission=AclPermissionType.DENY)
        wait_until(lambda: not is_sent(), "the end of the right to write")
    finally:
        producer.close(timeout=1)
        consumer.close(autocommit=False)


@pytest.fixture
def carol(secured: Secured) -> Iterator[confluent_kafka.Producer]:
    producer = confluent_kafka.Producer(secured.confluent("carol", **{"enable.idempotence": True}))
    yield producer
    producer.purge()
    producer.flush(5)


@pytest.mark.client("confluent-kafka")
def test_idempotence_needs_a_topic_to_write_to(secured: Secured, topic: str, carol: confluent_kafka.Producer) -> None:
    """KIP-679: whoever may write to some topic may use an idempotent producer; nobody else without IDEMPOTENT_WRITE."""
    errors: list[KafkaError | None] = []

    def send() -> KafkaError | None:
        carol.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        carol.flush(20)
        return errors[-1]

    secured.grant("carol", AclOperation.WRITE, ResourceType.TOPIC, topic[:-1], pattern=ResourcePatternType.PREFIXED)
    wait_until(lambda: send() is None, "the right to write")


@pytest.mark.client("confluent-kafka")
def test_transactions_need_their_id_their_topics_and_their_group(secured: Secured, topic: str, name: str) -> None:
    """WRITE on the transactional id to begin with, WRITE on each topic, READ on the group whose offsets are sent."""
    no_right = AclPermissionType.DENY
    settings = secured.confluent("gina", **{"transactional.id": name, "transaction.timeout.ms": 10000})

    def refusal(step: Callable[[confluent_kafka.Producer], Any]) -> int:
        """The code with which a step is refused to a producer; each refusal ends a producer for good."""
        producer = confluent_kafka.Producer(settings)
        try:
            step(producer)
        except KafkaException as error:
            code: int = error.args[0].code()
            return code
        finally:
            producer.purge()
        return KafkaError.NO_ERROR

    def begin(producer: confluent_kafka.Producer) -> None:
        producer.init_transactions(30)
        producer.begin_transaction()

    def send(producer: confluent_kafka.Producer) -> None:
        begin(producer)
        errors: list[KafkaError | None] = []
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        if errors[0] is not None:
            raise KafkaException(errors[0])
        producer.commit_transaction(30)

    def send_offsets(producer: confluent_kafka.Producer) -> None:
        begin(producer)
        group = group_metadata_of_gina(secured, name)
        producer.send_offsets_to_transaction([confluent_kafka.TopicPartition(topic, 0, 1)], group, 30)
        producer.commit_transaction(30)

    assert refusal(begin) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    secured.grant("gina", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    wait_until(lambda: refusal(begin) == KafkaError.NO_ERROR, "the right to use the id")
    assert refusal(send) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured.grant("gina", AclOperation.WRITE, ResourceType.TOPIC, topic)
    wait_until(lambda: refusal(send) == KafkaError.NO_ERROR, "the right to write")
    assert refusal(send_offsets) == KafkaError.GROUP_AUTHORIZATION_FAILED
    secured.grant("gina", AclOperation.READ, ResourceType.GROUP, name)
    secured.grant("gina", AclOperation.READ, ResourceType.TOPIC, topic)
    wait_until(lambda: refusal(send_offsets) == KafkaError.NO_ERROR, "the right to commit")
    secured.grant("gina", AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name, permission=no_right)
    wait_until(lambda: refusal(begin) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the end of the right")


def group_metadata_of_gina(secured: Secured, group: str) -> Any:
    """Metadata of a consumer that is configured with the group and has never joined it."""
    consumer = confluent_kafka.Consumer(secured.confluent("gina", **{"group.id": group}))
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()


@pytest.mark.client("confluent-kafka")
def test_what_a_user_sees(secured: Secured, topic: str, unique: Callable[[str], str]) -> None:
    """Metadata lists the topics that a user may describe; of others it does not even say whether they exist."""
    dave = AdminClient(secured.confluent("dave"))
    missing = unique("missing")
    secured.grant("dave", AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    wait_until(lambda: topic in dave.list_topics(timeout=30).topics, "the topic")
    assert set(dave.list_topics(timeout=30).topics) == {topic}
    for name in (missing, f"{topic}-not"):
        found = dave.list_topics(name, timeout=30).topics[name]
        assert found.error is not None
        assert found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured.grant("dave", AclOperation.READ, ResourceType.TOPIC, topic, permission=AclPermissionType.DENY)
    described = dave.describe_topics(confluent_kafka.TopicCollection([topic]), include_authorized_operations=True)
    assert set(described[topic].result(30).authorized_operations) == {AclOperation.DESCRIBE}
    cluster = dave.describe_cluster(include_authorized_operations=True).result(30)
    assert not cluster.authorized_operations
    secured.grant("dave", AclOperation.DESCRIBE, ResourceType.BROKER, "kafka-cluster")
    wait_until(
        lambda: (
            dave.describe_cluster(include_authorized_operations=True).result(30).authorized_operations
            == [AclOperation.DESCRIBE]
        ),
        "the right to describe the cluster",
    )


@pytest.mark.client("confluent-kafka")
def test_topics_are_created_and_deleted_by_whoever_may(secured: Secured, name: str) -> None:
    """CREATE on a prefix is enough to create, DELETE to delete; neither shows the settings of the new topic."""
    erin = AdminClient(secured.confluent("erin"))

    def outcome(futures: dict[str, Any]) -> int:
        (future,) = futures.values()
        try:
            future.result(30)
        except KafkaException as error:
            code: int = error.args[0].code()
            return code
        return KafkaError.NO_ERROR

    assert outcome(erin.create_topics([NewTopic(name, 1, 1)])) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured.grant("erin", AclOperation.CREATE, ResourceType.TOPIC, name, pattern=ResourcePatternType.PREFIXED)
    wait_until(lambda: outcome(erin.create_topics([NewTopic(name, 1, 1)])) == KafkaError.NO_ERROR, "the topic")
    assert outcome(erin.delete_topics([name])) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert outcome(erin.delete_topics([f"{name}-missing"])) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    secured.grant("erin", AclOperation.DELETE, ResourceType.TOPIC, name, pattern=ResourcePatternType.PREFIXED)
    wait_until(lambda: outcome(erin.delete_topics([name])) == KafkaError.NO_ERROR, "the right to delete")
    assert outcome(erin.delete_topics([f"{name}-missing"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.java
@pytest.mark.client("Java tools")
def test_entries_outlive_the_broker(secured: Secured, java_libs: Path, name: str) -> None:
    """Entries are in the metadata log, as kafka-dump-log reads it, and hold after a kill -9."""
    secured.grant("frank", AclOperation.DESCRIBE, ResourceType.TOPIC, name)

    def kept() -> list[AclBinding]:
        admin = AdminClient(secured.confluent("admin"))
        return [found for found in admin.describe_acls(ANY_TOPIC).result(30) if found.name == name]

    wait_until(lambda: len(kept()) == 1, "the entry")
    before = kept()
    secured.broker.kill()
    secured.broker.start()
    wait_until(lambda: kept() == before, "the entry after the kill")
    assert secured.broker.data_dir is not None
    logs = secured.broker.data_dir.glob("__cluster_metadata-0/*.log")
    files = ",".join(map(str, sorted(logs)))
    dumped = JavaTools(java_libs).check(DUMP_LOG, "--cluster-metadata-decoder", "--files", files, connected=False)
    assert re.search(
        rf'"ACCESS_CONTROL_ENTRY_RECORD".*"resourceName":"{name}".*"principal":"User:frank"', dumped.stdout
    )


@pytest.mark.client("confluent-kafka")
def test_everyone_may_everything_while_no_entry_is_there(
    start_broker: StartBroker, unique: Callable[[str], str]
) -> None:
    """allow.everyone.if.no.acl.found: an entry restricts the resource that it speaks of, and no other."""
    settings = {"authorizer.class.name": AUTHORIZER["authorizer.class.name"], "allow.everyone.if.no.acl.found": "true"}
    broker = start_broker("acls-open", settings)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    restricted, free = unique("restricted"), unique("free")
    for future in admin.create_topics([NewTopic(restricted, 1, 1), NewTopic(free, 1, 1)]).values():
        future.result(30)
    pattern, operation, permission = ResourcePatternType.LITERAL, AclOperation.READ, AclPermissionType.ALLOW
    binding = AclBinding(ResourceType.TOPIC, restricted, pattern, "User:somebody", "*", operation, permission)
    (future,) = admin.create_acls([binding]).values()
    future.result(30)
    wait_until(lambda: restricted not in admin.list_topics(timeout=30).topics, "the restriction")
    assert free in admin.list_topics(timeout=30).topics
    assert admin.describe_acls(ANY_TOPIC).result(30) == [binding]
    broker.kill()
