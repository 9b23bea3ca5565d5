"""A Kafka server for the tests: the one named, the one that runs here, or librdkafka's mock cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from hipq.transports.address import address
from hipq.transports.kafka_client import settings
from tests.brokers import kafka_mock
from tests.brokers.server import Server, shared_url

UNKNOWN_TOPIC: Final = 3
FORBIDDEN: Final = 29

_mocks: dict[str, OwnKafka] = {}
"""The clusters of our own, by their URLs."""


@cache
def kafka_url() -> str:
    """A server on which topics may be made. The one named may have a user, a password and librdkafka's options."""
    return shared_url(OwnKafka, "HIPQ_TEST_KAFKA_URL", 9092)


@contextmanager
def fresh_topic(partitions: int = 1) -> Iterator[str]:
    """The URL of a new topic, removed afterwards."""
    server, _, options = kafka_url().partition("?")
    name = f"hipq-test-{uuid4().hex}"
    url = with_options(f"{server}/{name}", options)
    if mock := _mocks.get(server):
        mock.create(name, partitions)
        yield url
        mock.tell("topic_delete", name)
        return
    admin = AdminClient({**settings(address(url))})
    admin.create_topics([NewTopic(name, partitions)])[name].result(30)
    try:
        yield url
    finally:
        admin.delete_topics([name])[name].result(30)


def with_options(url: str, options: str) -> str:
    """The URL with these too, like "a=b&c=d"."""
    return f"{url}{'&' if '?' in url else '?'}{options}" if options else url


def is_mock(url: str) -> bool:
    return url.partition("?")[0].rpartition("/")[0] in _mocks


def send_with_header(url: str, name: bytes, body: bytes) -> None:
    """Send a message that has a header with this name, which need not be text."""
    where = address(url)
    kafka_mock.send_with_header(settings(where), where.name, name, body)


class OwnKafka(Server):
    """A mock cluster. Stopped, it cuts its connections and refuses new ones; what it has outlasts that."""

    name = "librdkafka's mock cluster"
    url_form = "kafka://127.0.0.1:{port}"

    def __init__(self) -> None:
        if kafka_mock.library_file() is None:
            pytest.skip("no Kafka server here: pip install confluent-kafka's wheel, or set HIPQ_TEST_KAFKA_URL")
        super().__init__()
        self._hosts = ""

    @property
    def url(self) -> str:
        return f"kafka://{self._hosts}"

    def start(self) -> None:
        if self._process:
            self._each("broker_set_up")
            return
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.brokers.kafka_mock"], cwd=Path(__file__).parents[2], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout
        self._hosts = self._process.stdout.readline().strip()
        if not self._hosts:
            self.close()
            pytest.skip("no Kafka server here: librdkafka's mock cluster does not start")
        _mocks[self.url] = self

    def stop(self) -> None:
        self._each("broker_set_down")

    def close(self) -> None:
        _mocks.pop(self.url, None)
        pipes = (self._process.stdin, self._process.stdout) if self._process else ()
        super().close()
        for pipe in pipes:
            assert pipe
            pipe.close()

    def create(self, topic: str, partitions: int = 1) -> str:
        """The URL of a new topic."""
        self.tell("topic_create", topic, partitions, 1)
        return f"{self.url}/{topic}"

    def refuse(self, topic: str, error: int) -> str:
        """The URL of a topic that the server answers with this error."""
        self.tell("topic_set_error", topic, error)
        return f"{self.url}/{topic}"

    def tell(self, *words: object) -> None:
        """Call rd_kafka_mock_<word>(cluster, ...)."""
        assert self._process
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline().strip() == "0", words

    def _each(self, command: str) -> None:
        for broker in kafka_mock.BROKERS:
            self.tell(command, broker)
