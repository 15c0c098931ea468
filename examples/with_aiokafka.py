"""aiokafka: producer and consumer in one asyncio program."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import pykbroker


async def produce(bootstrap_servers):
    async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(3):
            await producer.send_and_wait("numbers", str(number).encode())


async def consume(bootstrap_servers, count):
    consumer = AIOKafkaConsumer("numbers", bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    async with consumer:
        return [int((await consumer.getone()).value) for _ in range(count)]


async def main():
    # LocalBroker blocks for the 0.3 s of its start; the broker itself is another process.
    with pykbroker.LocalBroker(topics=["numbers"]) as broker:
        values, _ = await asyncio.gather(consume(broker.bootstrap_servers, 3), produce(broker.bootstrap_servers))
    print("consumed:", values)


if __name__ == "__main__":
    asyncio.run(main())
