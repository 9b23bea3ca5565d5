"""`python -m bench.transports_bare URL COUNT`: read messages with nothing but the client library, and acknowledge them
a batch at a time. A line tells of the first, another of so many more."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from hipq.transports import Address, address

BATCH: Final = 1000
"""As many as a listener of hipq's takes at once."""
POLLERS: Final = 4
"""Threads that ask SQS, as many as hipq's."""
PATIENCE: Final = 60.0


class Count:
    """What is left to be read: one message, and then so many."""

    def __init__(self, count: int) -> None:
        self._most = 1 + count
        self.left = self._most

    def done(self, some: int) -> None:
        """So many are read and acknowledged."""
        if self.left == self._most:
            print("one", flush=True)
        self.left -= some
        if self.left == 0:
            print("all", flush=True)

    @property
    def batch(self) -> int:
        """How many to ask for: where a library waits until there are so many, not more than there are."""
        return 1 if self.left == self._most else min(BATCH, self.left)


def kafka(where: Address, count: Count) -> None:
    from confluent_kafka import Consumer

    settings = {"group.id": "bare", "auto.offset.reset": "earliest", "enable.auto.commit": False, **where.options}
    consumer = Consumer({"bootstrap.servers": where.hosts, **settings})
    consumer.subscribe([where.name])
    while count.left:
        if messages := consumer.consume(count.batch, 1.0):
            consumer.commit(asynchronous=False)
            count.done(sum(message.error() is None for message in messages))


def sqs(where: Address, count: Count) -> None:
    client = _aws("sqs", where)
    url, lock = client.get_queue_url(QueueName=where.name)["QueueUrl"], threading.Lock()

    def poll(_: int) -> None:
        while count.left > 0:
            answer = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            messages = answer.get("Messages", [])
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
            if entries:
                client.delete_message_batch(QueueUrl=url, Entries=entries)
                with lock:
                    count.done(len(messages))

    with ThreadPoolExecutor(POLLERS) as pool:
        list(pool.map(poll, range(POLLERS)))


def kinesis(where: Address, count: Count) -> None:
    """Kinesis has nothing to acknowledge, and allows five questions a second."""
    client = _aws("kinesis", where)
    (shard,) = client.list_shards(StreamName=where.name)["Shards"]
    found = client.get_shard_iterator(StreamName=where.name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
    iterator = found["ShardIterator"]
    while count.left:
        asked = time.monotonic()
        answer = client.get_records(ShardIterator=iterator, Limit=BATCH)
        iterator = answer["NextShardIterator"]
        if answer["Records"]:
            count.done(len(answer["Records"]))
        if count.left:
            time.sleep(max(0.0, asked + 0.2 - time.monotonic()))


def _aws(service: str, where: Address) -> Any:
    import boto3

    return boto3.session.Session().client(
        service, endpoint_url=where.options["endpoint"], region_name=where.options["region"]
    )


def nats(where: Address, count: Count) -> None:
    import nats as library

    async def read() -> None:
        client = await library.connect(f"nats://{where.hosts}")
        subscription = await client.jetstream().pull_subscribe(where.name, "bare")
        while count.left:
            messages = await subscription.fetch(count.batch, timeout=PATIENCE)
            for message in messages:
                await message.ack()
            await client.flush()
            count.done(len(messages))

    asyncio.run(read())


def amqp(where: Address, count: Count) -> None:
    import aio_pika

    async def read() -> None:
        login = f"{where.user}:{where.password}@" if where.user else ""
        async with await aio_pika.connect(f"amqp://{login}{where.hosts}") as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=BATCH)
            queue = await channel.get_queue(where.name)
            async with queue.iterator() as messages:
                async for message in messages:
                    if (count.left - 1) % (BATCH // 2) == 0:  # half of what is sent ahead: nobody has to wait
                        await message.ack(multiple=True)
                    count.done(1)

    asyncio.run(read())


def redis(where: Address, count: Count) -> None:
    import redis as library

    client = library.Redis.from_url(f"redis://{where.hosts}")
    client.xgroup_create(where.name, "bare", "0", mkstream=True)
    while count.left:
        reply: Any = client.xreadgroup("bare", "bare", {where.name: ">"}, count=BATCH, block=1000)
        for _, messages in reply:
            client.xack(where.name, "bare", *(job_id for job_id, _ in messages))
            count.done(len(messages))


def mqtt(where: Address, count: Count) -> None:
    """paho acknowledges each message when its callback returns."""
    from paho.mqtt.packettypes import PacketTypes
    from paho.mqtt.properties import Properties

    client = mqtt_client(f"bare-{where.name}")
    client.on_connect = lambda *_: client.subscribe(where.name, qos=1)
    client.on_message = lambda *_: count.done(1)
    wanted: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    wanted.SessionExpiryInterval, wanted.ReceiveMaximum = 3600, BATCH
    host, _, port = where.hosts.partition(":")
    client.connect(host, int(port), clean_start=False, properties=wanted)
    client.loop_forever()


def mqtt_client(name: str) -> Any:
    from paho.mqtt import client as paho
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages = BATCH
    return client


CONSUMERS: Final[dict[str, Callable[[Address, Count], None]]] = {
    one.__name__: one for one in (kafka, sqs, kinesis, nats, amqp, redis, mqtt)
}

if __name__ == "__main__":
    stream = address(sys.argv[1])
    CONSUMERS[stream.scheme](stream, Count(int(sys.argv[2])))
    time.sleep(PATIENCE)  # whoever reads the lines ends it
