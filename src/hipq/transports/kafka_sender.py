"""Sending to Kafka: at most once, within the sender's time-out."""

from __future__ import annotations

import contextlib
import math
import threading
from queue import Empty, SimpleQueue
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from hipq.errors import Invalid
from hipq.transports.address import Address
from hipq.transports.base import Outgoing
from hipq.transports.kafka_client import BackgroundError, client

LATE: Final = 1.25
"""Seconds by which librdkafka may time a message out too late, because it checks once a second."""
LEAST: Final = 0.25
LOOK_SECONDS: Final = 0.2
"""How long a producer without any report asks for the reason."""
CLOSE_SECONDS: Final = 4.0

SETTINGS: Final = {
    "acks": "all",
    "enable.idempotence": "true",  # a message that librdkafka repeats after a broken connection is stored once
    "linger.ms": "0",
    "message.max.bytes": "100000000",  # the server itself refuses messages that are too large
    "topic.metadata.propagation.max.ms": "2000",
}

_open: set[Producer] = set()
"""The open producers. They are kept alive in a forked child, which has no threads of theirs: destroying them there
would wait for those threads."""


class KafkaSender:
    """One producer for every time-out that senders use.

    librdkafka takes back a single message only by its time-out, which is fixed for a whole producer; purging a producer
    would take back other threads' messages with it. So a message goes to the producer that gives up just before its
    sender does, and `send` waits for that producer's report: then no buffer has the message any more. The report comes
    within `seconds` from two and a half seconds up, and for less at most half a second late.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._producers: dict[float, _ProducerThread] = {}
        self._lock = threading.Lock()

    def send(self, message: Outgoing, seconds: float) -> None:
        for name in message.headers:
            _encoded(name, "a header's name")  # confluent-kafka crashes the process on broken Unicode here
        headers = [(name, _encoded(value, "a header")) for name, value in message.headers.items()]
        self._producer_for(give_up(seconds)).send(message.body, _encoded(message.key, "the key") or None, headers)

    def close(self) -> None:
        with self._lock:
            while self._producers:
                self._producers.popitem()[1].close()

    def _producer_for(self, seconds: float) -> _ProducerThread:
        with self._lock:
            producer = self._producers.get(seconds)
            if producer is None or producer.closed:
                producer = self._producers[seconds] = _ProducerThread(self._address, seconds)
            return producer


def give_up(seconds: float) -> float:
    """librdkafka's time-out for a message whose sender waits `seconds`. It is rounded down by up to an eighth, so
    that a few producers serve all time-outs."""
    most = max(seconds - LATE, seconds / 2, LEAST)
    step: float = 2.0 ** (math.floor(math.log2(most)) - 3)
    return most // step * step


class _ProducerThread:
    """A producer, and the thread that receives its delivery reports."""

    def __init__(self, address: Address, seconds: float) -> None:
        self._seconds = seconds
        self._topic = address.name
        self._background = BackgroundError(address)
        timeout = {"message.timeout.ms": str(int(seconds * 1000)), "error_cb": self._background}
        self._producer = client(address, Producer, {**SETTINGS, **timeout})
        self.closed = False
        self._polling = threading.Thread(target=self._poll_reports, name="hipq-kafka", daemon=True)
        _open.add(self._producer)
        self._polling.start()

    def send(self, body: bytes, key: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        report: SimpleQueue[KafkaError | None] = SimpleQueue()
        error: KafkaError | None = KafkaError(KafkaError._FATAL, "the producer ended")
        # without a report librdkafka has lost the message, and ending the producer keeps it from being sent
        with contextlib.suppress(Empty):
            try:
                self._producer.produce(
                    self._topic, body, key, headers=headers, on_delivery=lambda *told: report.put(told[0])
                )
                error = report.get(timeout=self._seconds + 4 * LATE)
            except KafkaException as refused:
                error = refused.args[0]
            except BufferError:
                error = KafkaError(KafkaError._QUEUE_FULL, "too many messages are waiting to be sent")
        if error is None:
            self._background.clear()
            return
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.close()
        elif not self._background.explains(error):
            self._background.look(self._producer, LOOK_SECONDS)
        raise self._background.error(error)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(KafkaException, RuntimeError):
            self._producer.purge()  # every waiting sender gets a report
        if threading.current_thread() is not self._polling:
            self._polling.join(CLOSE_SECONDS)
        _open.discard(self._producer)

    def _poll_reports(self) -> None:
        while not self.closed:
            self._producer.poll(0.1)
        self._producer.poll(0)


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what} contains broken Unicode: {text!r:.60}") from None
