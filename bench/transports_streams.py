"""Streams to be read. Messages are put there in whatever way of the client library is quickest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Event
from typing import Any, Final, NamedTuple
from uuid import uuid4

from bench.lines import Broken
from bench.transports_bare import mqtt_client
from hipq.transports import address

Messages = Sequence[tuple[str, bytes]]
"""Keys and bodies."""
PATIENCE: Final = 60.0
AT_ONCE: Final = "fetch.wait.max.ms=20"
"""librdkafka's mock cluster keeps a question for so long, although there are messages by then."""


class Stream(NamedTuple):
    url: str
    put: Callable[[Messages], None]
    environment: Mapping[str, str] = {}


def _name() -> str:
    return f"hipq-bench-{uuid4().hex[:12]}"


@contextmanager
def kafka() -> Iterator[Stream]:
    from confluent_kafka import Producer
    from tests.brokers.kafka import fresh_topic

    with fresh_topic(4) as url:
        where = address(url)

        def put(messages: Messages) -> None:
            producer = Producer({"bootstrap.servers": where.hosts, "queue.buffering.max.messages": len(messages) + 1})
            for key, body in messages:
                producer.produce(where.name, body, key)
            if producer.flush(PATIENCE):
                raise Broken("Kafka did not take all messages")

        yield Stream(f"{url}?{AT_ONCE}", put)


@contextmanager
def sqs() -> Iterator[Stream]:
    from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint, client

    made, name = client("sqs", aws_endpoint()), _name()
    url = made.create_queue(QueueName=name)["QueueUrl"]

    def put(messages: Messages) -> None:
        for start in range(0, len(messages), 10):
            some = messages[start : start + 10]
            entries = [{"Id": str(n), "MessageBody": body.decode()} for n, (_, body) in enumerate(some)]
            made.send_message_batch(QueueUrl=url, Entries=entries)

    yield Stream(f"sqs://{name}?endpoint={aws_endpoint()}&region={REGION}", put, CREDENTIALS)
    made.delete_queue(QueueUrl=url)


@contextmanager
def kinesis() -> Iterator[Stream]:
    from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint, client

    made, name = client("kinesis", aws_endpoint()), _name()
    made.create_stream(StreamName=name, ShardCount=1)

    def put(messages: Messages) -> None:
        for start in range(0, len(messages), 500):
            some = messages[start : start + 500]
            made.put_records(StreamName=name, Records=[{"Data": body, "PartitionKey": key} for key, body in some])

    yield Stream(f"kinesis://{name}?endpoint={aws_endpoint()}&region={REGION}", put, CREDENTIALS)
    made.delete_stream(StreamName=name)


@contextmanager
def nats() -> Iterator[Stream]:
    import nats as library
    from tests.brokers.nats import nats_url

    url, name = nats_url(), _name()

    async def make(wanted: bool) -> None:
        client = await library.connect(url)
        js = client.jetstream()
        await (js.add_stream(name=name, subjects=[name]) if wanted else js.delete_stream(name))
        await client.close()

    async def put(messages: Messages) -> None:
        client = await library.connect(url)
        for _, body in messages:
            await client.publish(name, body)
        await client.request("$JS.API.INFO", timeout=PATIENCE)  # when this is answered it has read all before it
        await client.close()

    asyncio.run(make(True))
    yield Stream(f"{url}/{name}", lambda messages: asyncio.run(put(messages)))
    asyncio.run(make(False))


@contextmanager
def amqp() -> Iterator[Stream]:
    import aio_pika
    from tests.brokers.amqp import amqp_url

    url, name = amqp_url(), _name()

    async def make(wanted: bool) -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            await (channel.declare_queue(name, durable=True) if wanted else channel.queue_delete(name))

    async def put(messages: Messages) -> None:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            for key, body in messages:
                message = aio_pika.Message(body, message_id=key, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(message, name)
            await channel.declare_queue(name, passive=True)  # when this is answered it has read all before it

    asyncio.run(make(True))
    yield Stream(f"{url}/{name}", lambda messages: asyncio.run(put(messages)))
    asyncio.run(make(False))


@contextmanager
def redis() -> Iterator[Stream]:
    import redis as library
    from tests.brokers.redis import redis_url

    url, name = redis_url(), _name()
    client = library.Redis.from_url(url)

    def put(messages: Messages) -> None:
        for start in range(0, len(messages), 1000):
            pipeline = client.pipeline(transaction=False)
            for _, body in messages[start : start + 1000]:
                pipeline.xadd(name, {"body": body})
            pipeline.execute()

    yield Stream(f"{url}/{name}", put)
    client.delete(name)
    client.close()


@contextmanager
def mqtt() -> Iterator[Stream]:
    """Its server keeps messages for those who listen, or have listened; a retained one also for whoever comes later."""
    from tests.brokers.mqtt import OwnMosquitto

    with OwnMosquitto() as server:
        name = _name()

        def put(messages: Messages) -> None:
            left, done = len(messages), Event()

            def confirmed(*_: Any) -> None:
                nonlocal left
                left -= 1
                if not left:
                    done.set()

            client = mqtt_client(f"bench-{uuid4().hex[:12]}")
            client.on_publish = confirmed
            host, port = server.url.removeprefix("mqtt://").split(":")
            client.connect(host, int(port))
            client.loop_start()
            for _, body in messages:
                client.publish(name, body, qos=1, retain=len(messages) == 1)
            if not done.wait(PATIENCE):
                raise Broken("Mosquitto did not take all messages")
            client.disconnect()
            client.loop_stop()

        yield Stream(f"{server.url}/{name}", put)


Make = Callable[[], AbstractContextManager[Stream]]
STREAMS: Final[dict[str, Make]] = {one.__name__: one for one in (kafka, sqs, kinesis, nats, amqp, redis, mqtt)}
