"""Topics, settings and features: good and bad requests of administrators."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.protocol.messages import alter_configs as ac
from pykbroker.protocol.messages import create_partitions as cp
from pykbroker.protocol.messages import create_topics as ct
from pykbroker.protocol.messages import delete_topics as dt
from pykbroker.protocol.messages import incremental_alter_configs as ia
from pykbroker.protocol.messages import update_features as uf
from tests.differential.world import World

ZERO = bytes(16)
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


class Admin:
    """An administrator's requests to one broker."""

    def __init__(self, world: World) -> None:
        self._world = world

    def create(self, *topics: ct.CreatableTopic, validate_only: bool = False) -> dict[str, bytes]:
        request = ct.CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
        return {topic.name: topic.topic_id for topic in self._world.call(request, 7).topics}

    def delete(self, *topics: tuple[str | None, bytes]) -> None:
        states = [dt.DeleteTopicState(name=topic, topic_id=topic_id) for topic, topic_id in topics]
        self._world.call(dt.DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)

    def grow(self, *topics: tuple[str, int, Sequence[Sequence[int]] | None], validate_only: bool = False) -> None:
        wanted = [
            cp.CreatePartitionsTopic(
                name=topic,
                count=count,
                assignments=None
                if assignments is None
                else [cp.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in assignments],
            )
            for topic, count, assignments in topics
        ]
        request = cp.CreatePartitionsRequest(topics=wanted, timeout_ms=10_000, validate_only=validate_only)
        self._world.call(request, 3)

    def edit(self, *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]]) -> None:
        edited = [
            ia.AlterConfigsResource(
                resource_type=kind,
                resource_name=resource,
                configs=[ia.AlterableConfig(name=k, config_operation=op, value=v) for k, op, v in edits],
            )
            for kind, resource, edits in resources
        ]
        self._world.call(ia.IncrementalAlterConfigsRequest(resources=edited), 1)

    def replace(self, kind: int, resource: str, *configs: tuple[str, str | None]) -> None:
        values = [ac.AlterableConfig(name=key, value=value) for key, value in configs]
        resources = [ac.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=values)]
        self._world.call(ac.AlterConfigsRequest(resources=resources), 2)

    def feature(self, *updates: tuple[str, int, int]) -> None:
        keys = [
            uf.FeatureUpdateKey(feature=f, max_version_level=level, upgrade_type=kind) for f, level, kind in updates
        ]
        for version in (1, 2):
            self._world.call(uf.UpdateFeaturesRequest(feature_updates=keys, timeout_ms=10_000), version)


def topic(
    name: str,
    partition_count: int = 1,
    replication_factor: int = 1,
    assignments: Sequence[tuple[int, Sequence[int]]] = (),
    **configs: str | None,
) -> ct.CreatableTopic:
    """Config names with "_" in place of "."."""
    return ct.CreatableTopic(
        name=name,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        assignments=[ct.CreatableReplicaAssignment(partition_index=p, broker_ids=list(ids)) for p, ids in assignments],
        configs=[ct.CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


def create_topics(admin: Admin) -> None:
    """P-143 to P-147."""
    admin.create(topic("base_x", 3, retention_ms="5"))
    for name in ("", ".", "..", "a b", "x" * 250, "base.x", "base_x", "é", "__cluster_metadata"):
        admin.create(topic(name))
    for count, factor in ((0, 1), (-2, 1), (1, 0), (1, -2), (1, 2), (-1, -1)):
        admin.create(topic("counts", count, factor))
    for count, factor, assignments in (
        (1, 1, [(0, [1])]),
        (-1, 1, [(0, [1])]),
        (1, -1, [(0, [1])]),
        (-1, -1, [(0, [9])]),
        (-1, -1, [(0, [1, 1])]),
        (-1, -1, [(0, [])]),
        (-1, -1, [(1, [1])]),
        (-1, -1, [(0, [1]), (0, [1])]),
        (-1, -1, [(0, [1]), (1, [1])]),
    ):
        admin.create(topic("manual", count, factor, assignments))
    for key, value in (
        ("no.such", "1"),
        ("retention.ms", None),
        ("retention.ms", "x"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "foo"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1"),
        ("compression.type", "zip"),
    ):
        admin.create(topic("config", **{key: value}))  # type: ignore[arg-type]
    admin.create(topic("dup"), topic("dup"), topic("once"))
    admin.create(topic("checked"), topic("bad", 0), validate_only=True)
    admin.create(topic("big", 10_001))


def delete_topics(admin: Admin) -> None:
    """P-148."""
    ids = admin.create(topic("del1"), topic("del2"))
    unknown = b"q" * 16
    admin.delete(("nope", ZERO))
    admin.delete((None, unknown))
    admin.delete((None, ZERO))
    admin.delete(("del1", ids["del1"]))
    admin.delete(("del1", ZERO), ("del1", ZERO))
    admin.delete((None, ids["del1"]), (None, ids["del1"]))
    admin.delete(("del1", ZERO), (None, ids["del1"]))
    admin.delete((None, ids["del1"]))
    admin.delete(("del2", ZERO))


def create_partitions(admin: Admin) -> None:
    """P-149. (100,000 at once is not asked for: Kafka refuses that with code -1, and yet creates 10,000 of them.)"""
    for count in (3, 2, 0, -1):
        admin.grow(("base_x", count, None))
    admin.grow(("none", 2, None))
    for count, assignments in ((5, [[1]]), (4, [[1, 1]]), (4, [[7]]), (4, [[]])):
        admin.grow(("base_x", count, assignments))
    admin.grow(("base_x", 4, None), validate_only=True)
    admin.grow(("base_x", 4, [[1]]))
    admin.grow(("base_x", 6, None), ("base_x", 7, None))


def alter_configs(admin: Admin) -> None:
    """P-153."""
    for key, operation, value in (
        ("retention.ms", SET, "9"),
        ("retention.ms", APPEND, "9"),
        ("retention.ms", SET, None),
        ("retention.ms", DELETE, None),
        ("retention.ms", DELETE, None),
        ("retention.ms", SET, "x"),
        ("cleanup.policy", APPEND, "compact"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", APPEND, "foo"),
        ("nope", SET, "1"),
        ("nope", DELETE, None),
    ):
        admin.edit((TOPIC, "base_x", [(key, operation, value)]))
    admin.edit((TOPIC, "base_x", [("retention.ms", 9, "1")]))
    admin.edit((TOPIC, "base_x", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]))
    admin.edit((TOPIC, "base_x", []))
    admin.edit(*[(TOPIC, "base_x", [("retention.ms", SET, value)]) for value in "89"])
    for kind, name, key, value in (
        (TOPIC, "none", "retention.ms", "1"),
        (TOPIC, "", "retention.ms", "1"),
        (TOPIC, "a b", "retention.ms", "1"),
        (BROKER, "1", "log.cleaner.threads", "2"),
        (BROKER, "", "log.cleaner.threads", "2"),
        (BROKER, "7", "log.cleaner.threads", "2"),
        (BROKER, "x", "log.cleaner.threads", "2"),
        (BROKER, "1", "nope.nope", "2"),
        (BROKER, "1", "node.id", "2"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (GROUP, "", "consumer.session.timeout.ms", "50000"),
        (GROUP, "g", "zz", "1"),
        (CLIENT_METRICS, "m", "interval.ms", "1"),
        (99, "x", "a", "b"),
    ):
        admin.edit((kind, name, [(key, SET, value)]))
    admin.replace(TOPIC, "base_x", ("retention.ms", "3"))
    admin.replace(TOPIC, "base_x", ("retention.ms", None))
    admin.replace(TOPIC, "base_x", ("nope", "3"))
    admin.replace(TOPIC, "base_x", ("retention.ms", "1"), ("retention.ms", "2"))
    admin.replace(TOPIC, "none", ("retention.ms", "3"))
    admin.replace(99, "base_x")
    admin.replace(TOPIC, "base_x")


def update_features(admin: Admin) -> None:
    """P-158; not of features that do not exist here yet."""
    for level, kind in ((30, 1), (29, 1), (29, 2), (29, 3), (31, 1), (3, 2), (30, 2), (30, 0), (30, 7), (0, 2)):
        admin.feature(("metadata.version", level, kind))
    admin.feature(("foo", 1, 1))
    admin.feature(("foo", 0, 2))
    admin.feature(("foo", -1, 1))
    admin.feature(("metadata.version", 30, 1), ("foo", 1, 1))
    admin.feature()


def administration(world: World) -> None:
    """All of it; the last part changes what the cluster has finalized."""
    admin = Admin(world)
    for part in (create_topics, delete_topics, create_partitions, alter_configs, update_features):
        part(admin)
