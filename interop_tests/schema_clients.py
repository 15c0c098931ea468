"""confluent-kafka's serializers: `schema_clients.py write|read BOOTSTRAP REGISTRY TOPIC avro|json|protobuf N`.

`write` sends the purchases N to N + 49, `read` prints the first N purchases of the topic as JSON. Runs in a process of
its own: the serializers need packages that the tests do not have.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import SerializationContext

COUNT = 50
AVRO = {
    "type": "record",
    "name": "Purchase",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Purchase",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id", "item"],
}
PROTOBUF_TYPES = {"id": 3, "item": 9}
"""Fields with the numbers of their types, int64 and string, in a FileDescriptorProto."""


def purchase(number: int) -> dict[str, Any]:
    """A purchase, the same for the same number."""
    return {"id": number, "item": f"thing {number % 7}"}


def protobuf_class() -> Any:
    """The class of a Protobuf message, without a compiler: a descriptor is all that it is made of."""
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="purchase.proto", syntax="proto3")
    message = file.message_type.add(name="Purchase")
    for number, (name, kind) in enumerate(PROTOBUF_TYPES.items(), start=1):
        message.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Purchase"))


def serializer(registry: SchemaRegistryClient, kind: str) -> Any:
    """A function from a purchase and a context to bytes; it registers its schema with the first one."""
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroSerializer

        return AvroSerializer(registry, json.dumps(AVRO))
    if kind == "json":
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        return JSONSerializer(json.dumps(JSON_SCHEMA), registry)
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer

    made = protobuf_class()
    inner = ProtobufSerializer(made, registry, {"use.deprecated.format": False})
    return lambda value, context: inner(made(**value), context)


def deserializer(registry: SchemaRegistryClient, kind: str) -> Any:
    """A function from bytes and a context to a purchase, by the schema that the bytes name."""
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer

        return AvroDeserializer(registry)
    if kind == "json":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer

        return JSONDeserializer(json.dumps(JSON_SCHEMA), schema_registry_client=registry)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer

    inner = ProtobufDeserializer(protobuf_class(), {"use.deprecated.format": False}, registry)

    def read(data: bytes, context: SerializationContext) -> dict[str, Any]:
        message = inner(data, context)
        return {name: getattr(message, name) for name in PROTOBUF_TYPES}

    return read


def main() -> None:
    """Write or read, as the command line says."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.serialization import MessageField, SerializationContext

    does, bootstrap, url, topic, kind, number = sys.argv[1:]
    registry = SchemaRegistryClient({"url": url})
    context = SerializationContext(topic, MessageField.VALUE)
    if does == "write":
        serialize = serializer(registry, kind)
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        for value in map(purchase, range(int(number), int(number) + COUNT)):
            producer.produce(topic, serialize(value, context))
        if producer.flush(30):
            sys.exit("not all records were acknowledged within 30 s")
        return
    deserialize = deserializer(registry, kind)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "schema-clients"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages: list[Any] = []
    while len(messages) < int(number):
        messages += [message for message in consumer.consume(1000, 1) if message.error() is None]
    consumer.close()
    print(json.dumps([deserialize(message.value(), context) for message in messages]))


if __name__ == "__main__":
    main()
