"""Scripts made by chance: requests of every API and version that we advertise, filled from the message declarations.

A request is first filled with values that make sense (`values.SENSIBLE`), about the script's own topics, groups and
producers; then none, one or several of its fields are spoiled (`values.spoiled`). The same seed gives the same script.
"""

from __future__ import annotations

import random
from typing import Any

from pykbroker.protocol.fields import STRUCT_DEFAULT, Field, Message, default_struct
from pykbroker.requests.api_table import APIS
from tests.differential.admin_values import AdminValues
from tests.differential.consumer_values import ConsumerValues
from tests.differential.group_values import GroupValues
from tests.differential.script import FRAME_DAMAGES, GUESTS, Step
from tests.differential.values import KEPT, Values
from tests.differential.wire import message_type

THEMES: dict[str, dict[str, int]] = {
    "data": {
        "produce": 10,
        "fetch": 8,
        "list_offsets": 5,
        "offset_for_leader_epoch": 3,
        "delete_records": 3,
        "init_producer_id": 3,
        "metadata": 2,
        "incremental_alter_configs": 2,
        "describe_producers": 2,
        "delete_topics": 1,
        "create_topics": 1,
        "create_partitions": 1,
    },
    "groups": {
        "find_coordinator": 1,
        "join_group": 8,
        "sync_group": 8,
        "heartbeat": 4,
        "leave_group": 3,
        "offset_commit": 6,
        "offset_fetch": 6,
        "offset_delete": 3,
        "describe_groups": 3,
        "list_groups": 2,
        "delete_groups": 2,
        "create_topics": 1,
        "delete_topics": 1,
    },
    "transactions": {
        "init_producer_id": 5,
        "add_partitions_to_txn": 6,
        "add_offsets_to_txn": 4,
        "txn_offset_commit": 5,
        "end_txn": 6,
        "produce": 10,
        "fetch": 6,
        "list_offsets": 4,
        "offset_fetch": 3,
        "offset_commit": 1,
        "describe_transactions": 3,
        "list_transactions": 2,
        "describe_producers": 3,
        "find_coordinator": 1,
        "write_txn_markers": 1,
    },
    "share": {
        "share_group_heartbeat": 8,
        "share_group_describe": 3,
        "share_fetch": 12,
        "share_acknowledge": 8,
        "describe_share_group_offsets": 3,
        "alter_share_group_offsets": 1,
        "delete_share_group_offsets": 1,
        "produce": 3,
        "delete_groups": 1,
        "list_groups": 1,
        "describe_groups": 1,
    },
    "share states": {
        "initialize_share_group_state": 4,
        "read_share_group_state": 6,
        "write_share_group_state": 10,
        "delete_share_group_state": 1,
        "read_share_group_state_summary": 4,
    },
    "streams": {
        "streams_group_heartbeat": 14,
        "streams_group_describe": 4,
        "create_topics": 1,
        "create_partitions": 1,
        "offset_commit": 1,
        "list_groups": 1,
        "describe_groups": 1,
        "delete_groups": 1,
        "consumer_group_heartbeat": 1,
    },
    "telemetry": {
        "get_telemetry_subscriptions": 6,
        "push_telemetry": 6,
        "incremental_alter_configs": 2,
        "list_config_resources": 1,
    },
    "consumer groups": {
        "consumer_group_heartbeat": 24,
        "consumer_group_describe": 4,
        "offset_commit": 4,
        "offset_fetch": 4,
        "offset_delete": 1,
        "join_group": 3,
        "sync_group": 2,
        "heartbeat": 2,
        "leave_group": 1,
        "list_groups": 1,
        "describe_groups": 1,
        "delete_groups": 1,
        "create_topics": 1,
        "create_partitions": 1,
        "delete_topics": 1,
        "incremental_alter_configs": 1,
    },
    "administration": {
        "create_topics": 4,
        "create_partitions": 3,
        "delete_topics": 1,
        "alter_partition_reassignments": 4,
        "list_partition_reassignments": 1,
        "elect_leaders": 2,
        "alter_replica_log_dirs": 2,
        "describe_log_dirs": 1,
        "describe_configs": 5,
        "incremental_alter_configs": 8,
        "alter_client_quotas": 5,
        "describe_client_quotas": 4,
        "list_transactions": 3,
        "list_groups": 2,
        "find_coordinator": 2,
        "describe_topic_partitions": 4,
        "describe_cluster": 1,
        "describe_quorum": 1,
        "describe_acls": 3,
        "create_acls": 1,
        "unregister_broker": 1,
        "init_producer_id": 1,
        "join_group": 1,
        "offset_commit": 1,
    },
    "everything": {},
    "refusals": {},
}
"""Weights of the APIs in each theme; those without weights send every API with weight 1.

In "refusals" most requests come from guests, who may do a few things (`values.grants`)."""

NEVER = {
    "sasl_authenticate": "needs a listener with SASL",
}
"""APIs that scripts made by chance leave out, with the reason."""

CONNECTIONS = 4
GUESTS_SHARE = 0.8
"""Share of guests' requests in scripts about refusals."""


class Generator:
    """One script. Its values come from `seed` alone."""

    def __init__(self, seed: int, theme: str | None = None) -> None:
        self.random = random.Random(seed)
        available = {api.name: api for api in APIS.values() if api.name not in NEVER}
        self.theme = theme or self.random.choice([name for name in THEMES if self._fits(name, set(available))])
        weights = {name: weight for name, weight in THEMES[self.theme].items() if name in available}
        self._weights = weights or dict.fromkeys(available, 1)
        self._available = available
        self._values = Values(self.random)
        self._group_values = GroupValues(self.random, self.theme)
        self._admin_values = AdminValues(self.random) if self.theme == "administration" else None
        self._consumer_values = ConsumerValues(self.random) if self.theme == "consumer groups" else None

    @staticmethod
    def _fits(theme: str, available: set[str]) -> bool:
        weights = THEMES[theme]
        return sum(name in available for name in weights) >= len(weights) - 2

    def script(self, length: int) -> list[Step]:
        """Preparations and `length` requests."""
        prepared = (self._consumer_values or self._group_values).preparations()
        steps = prepared or [Step(0, "create_topics", 7, self._values.first_topics())]
        if self.theme == "refusals":
            steps += [*self._group(), Step(0, "create_acls", 3, self._values.grants())]
        if self.theme in ("data", "transactions"):
            steps += [self._step("init_producer_id", 0, 0) for _ in range(2)]
        if self.theme == "groups":
            steps += self._group()
        for _ in range(length):
            (api,) = self.random.choices(list(self._weights), list(self._weights.values()))
            if api == "sync_group" and self._consumer_values is None and self.random.random() < 0.2:
                steps += self._group()
            steps.append(self._step(api))
        return steps

    def _group(self) -> list[Step]:
        """A member joins a group and leads it."""
        v, pick = self._values, self.random.choice
        group, connection = v.group(), self.random.randrange(CONNECTIONS)
        version = pick((0, 2, 3, 4, 5, 7, 9))
        return [
            Step(connection, "join_group", version, v.join(group, version)),
            *([Step(connection, "join_group", version, v.join(group, version, 0))] if version >= 4 else []),
            Step(connection, "sync_group", min(version, 5), v.sync(group, min(version, 5))),
        ]

    def _step(self, api: str, spoil: int | None = None, connection: int | None = None) -> Step:
        entry = self._available[api]
        version = self.random.choice((entry.highest, self.random.randint(entry.lowest, entry.highest)))
        whole = self._admin_values or self._consumer_values or self._group_values
        request = whole.request(api, version) or self._group_values.request(api, version)
        request = request or self._filled(message_type(api, "Request"), version)
        if connection is None:
            connection = self._group_values.connection(api, request)
        if spoil is None:
            # Whether a member of a consumer group is known depends on its earlier requests, which have to be good.
            counts = (0, 0, 0, 1, 1, 2, 4) if self._consumer_values is None else (*[0] * 9, 1, 1, 2)
            spoil = self.random.choice(counts)
        for _ in range(spoil):
            self._spoil(request, version)
        self._values.finish(api, version, request, has_guests=self.theme == "refusals")
        self._group_values.finish(api, request)
        if self._consumer_values is not None:
            self._consumer_values.finish(api, version, request)
        damage = self.random.choice(FRAME_DAMAGES) if self.random.random() < 0.02 and spoil else ""
        if connection is None:
            connection = self.random.randrange(CONNECTIONS)
        if self.theme == "refusals" and self.random.random() < GUESTS_SHARE:
            connection += GUESTS
        return Step(connection, api, version, request, damage)

    def _filled(self, message: type[Message], version: int) -> Any:
        fields = {f.name: self._value(message, f, version) for f in message.FIELDS if version in f.versions}
        return message(**fields)

    def _value(self, message: type[Message], field: Field, version: int) -> Any:
        if self._values.knows(message, field):
            return self._values.sensible(message, field, version)
        if field.kind == "array":
            if version in field.nullable and self.random.random() < 0.2:
                return None
            count = self.random.choice((1, 1, 1, 1, 2, 3))
            return [self._value(message, _named(field.element, field.name), version) for _ in range(count)]
        if field.kind == "struct":
            if field.default is STRUCT_DEFAULT and self.random.random() < 0.7:
                return default_struct(field.element)
            if version in field.nullable and self.random.random() < 0.7:
                return None
            return self._filled(field.element, version)
        return self._values.sensible(message, field, version)

    def _spoil(self, request: Message, version: int) -> None:
        """Gives one field, anywhere in the request, another value."""
        places = list(_places(request, version))
        if not places:
            return
        holder, field, index = self.random.choice(places)
        if (type(holder).__name__, field.name) in KEPT or field.name in KEPT:
            return
        if index is not None:
            items = getattr(holder, field.name)
            items[index] = self._values.spoiled(holder, _named(field.element, field.name), version, items[index])
        elif field.kind == "array" and self.random.random() < 0.85:
            old = getattr(holder, field.name)
            setattr(
                holder, field.name, self._values.spoiled_array(field, version, old if isinstance(old, list) else [])
            )
        else:
            setattr(holder, field.name, self._values.spoiled(holder, field, version, getattr(holder, field.name)))


def _named(element: Field, name: str) -> Field:
    """An array's element under the array's name, which says what it holds."""
    named = Field(element.kind, "0+", element=element.element, default=element.default)
    named.name = name
    return named


def _places(message: Message, version: int) -> Any:
    """(message, field, index in a list of scalars or None) of everything in a request that has a value."""
    for field in message.FIELDS:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        yield message, field, None
        if isinstance(value, Message):
            yield from _places(value, version)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, Message):
                    yield from _places(item, version)
                else:
                    yield message, field, index
