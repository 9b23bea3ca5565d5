"""Where requests go and answers come from in each acceptance test: names on a server, which may be restarted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from tests.servers import free_port


class Rig(NamedTuple):
    to: str
    """Where the application sends its requests;"""
    come: str
    """where the service takes them from;"""
    answers: str
    """where the application listens ("" = it is called back);"""
    go: str
    """and where the service sends answers."""
    restart: Callable[[], None] | None = None
    """Stop the server and start it again, if its messages survive that."""
    environment: dict[str, str] = {}  # noqa: RUF012 - never written to


@contextmanager
def kafka() -> Iterator[Rig]:
    from tests.brokers.kafka import fresh_topic

    with fresh_topic(4) as to, fresh_topic(4) as answers:
        quick = "session.timeout.ms=1500&heartbeat.interval.ms=300"
        yield Rig(to, f"{to}?{quick}", f"{answers}?{quick}", answers)


@contextmanager
def http_and_kafka() -> Iterator[Rig]:
    """The first use case of all: a request by HTTP, its answer by Kafka."""
    with kafka() as rig:
        url = f"http://127.0.0.1:{free_port()}"
        yield rig._replace(to=f"{url}/charges/{{key}}", come=url)


@contextmanager
def http() -> Iterator[Rig]:
    url = f"http://127.0.0.1:{free_port()}"
    yield Rig(f"{url}/charges/{{key}}", url, "", "")


@contextmanager
def sqs() -> Iterator[Rig]:
    from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint, client

    endpoint, names = aws_endpoint(), [f"hipq-{way}-{uuid4().hex[:8]}" for way in ("out", "back")]
    made = client("sqs", endpoint)
    urls = [made.create_queue(QueueName=name)["QueueUrl"] for name in names]
    options = f"endpoint={endpoint}&region={REGION}"
    to, answers = (f"sqs://{name}?{options}" for name in names)
    try:
        yield Rig(to, to, f"{answers}&visibility=3", answers, environment=CREDENTIALS)
    finally:
        for url in urls:
            made.delete_queue(QueueUrl=url)


@contextmanager
def kinesis() -> Iterator[Rig]:
    from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint, client

    endpoint, names = aws_endpoint(), [f"hipq-{way}-{uuid4().hex[:8]}" for way in ("out", "back")]
    made = client("kinesis", endpoint)
    for name in names:
        made.create_stream(StreamName=name, ShardCount=3)
    options = f"endpoint={endpoint}&region={REGION}"
    to, answers = (f"kinesis://{name}?{options}" for name in names)
    try:
        yield Rig(to, to, answers, answers, environment=CREDENTIALS)
    finally:
        for name in names:
            made.delete_stream(StreamName=name)


def _own(server: Any, first: str, second: str, options: str = "") -> Rig:
    to, answers = f"{server.url}/{first}", f"{server.url}/{second}"
    return Rig(to, to, f"{answers}{options}", answers, server.restart)


@contextmanager
def nats() -> Iterator[Rig]:
    from tests.brokers.nats import OwnNats

    with OwnNats() as server:
        yield _own(server, "charges.out", "charges.back", "?ack_wait=2")


@contextmanager
def amqp() -> Iterator[Rig]:
    from tests.brokers.amqp import OwnRabbit

    with OwnRabbit() as server:
        yield _own(server, "charges-out", "charges-back")


@contextmanager
def redis() -> Iterator[Rig]:
    from tests.brokers.redis import OwnRedis

    with OwnRedis() as server:
        yield _own(server, "charges-out", "charges-back", "?idle=1")


@contextmanager
def mqtt() -> Iterator[Rig]:
    from tests.brokers.mqtt import OwnMosquitto

    with OwnMosquitto() as server:
        yield _own(server, "charges/out", "charges/back")


RIGS: Final = {rig.__name__: rig for rig in (http_and_kafka, http, kafka, sqs, kinesis, nats, amqp, redis, mqtt)}
