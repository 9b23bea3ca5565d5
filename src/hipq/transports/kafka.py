"""Kafka: `kafka://user:password@h1:9092,h2:9092/TOPIC?group=shop&any.librdkafka.option=value`.

An option with a dot is given to librdkafka as it is. A user without `security.protocol` means SASL_PLAINTEXT with
PLAIN.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from operator import methodcaller
from queue import Empty, SimpleQueue
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Record

from hipq.errors import Invalid
from hipq.transports.address import Address
from hipq.transports.base import Checkpoints, Message, Outgoing
from hipq.transports.kafka_client import NO_TOPIC, BackgroundError, Log, client

REACH_SECONDS: Final = 5.0
"""How long a new source looks for its server."""
LATE: Final = 1.25
"""Seconds by which librdkafka may time a message out too late, because it checks once a second."""
LEAST: Final = 0.25
RETURN_SECONDS: Final = 0.5
"""How long a broken connection may take to come back, or to say why not."""
LOOK_SECONDS: Final = 0.2
"""How long a client that has no report of an error asks for the reason."""
GATHER_SECONDS: Final = 0.002
COMMIT_SECONDS: Final = 5.0
"""How long the server may take to confirm what was acknowledged."""
GIVE_UP_SECONDS: Final = 1.0
CLOSE_SECONDS: Final = 4.0

_CONSUMER: Final = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "earliest",
    "session.timeout.ms": "8000",  # a killed process's partitions go to another consumer after ten seconds
    "socket.timeout.ms": "10000",
    "queued.min.messages": "2000",
    "queued.max.messages.kbytes": "16384",
    "fetch.max.bytes": "8388608",
    "fetch.queue.backoff.ms": "5",  # otherwise a queue that was full is filled again only after a second
}
_PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": "true",  # a message that librdkafka repeats after a broken connection is stored once
    "linger.ms": "0",
    "message.max.bytes": "100000000",  # the server itself refuses messages that are too large
    "topic.metadata.propagation.max.ms": "2000",
}
_OURS: Final = {
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store",
    "enable.partition.eof", "request.required.acks", "enable.idempotence", "message.timeout.ms", "delivery.timeout.ms",
    "message.send.max.retries", "transactional.id", "plugin.library.paths",
}  # fmt: skip
"""Options that the promises of `base` depend on, and options that would run code."""

_E: Final = KafkaError
_PASSING: Final = {
    _E._PARTITION_EOF, _E._TRANSPORT, _E._TIMED_OUT,
    _E._MAX_POLL_EXCEEDED,  # the group went on without this consumer, and lets it join again
    _E._BAD_MSG, _E._BAD_COMPRESSION, _E.INVALID_MSG,  # a record that nobody can read: librdkafka goes on with the next
}  # fmt: skip
_NOT_OURS_NOW: Final = {
    _E.ILLEGAL_GENERATION, _E.UNKNOWN_MEMBER_ID, _E.REBALANCE_IN_PROGRESS, _E.FENCED_INSTANCE_ID,
    _E.STALE_MEMBER_EPOCH, _E._ASSIGNMENT_LOST,
}  # fmt: skip
"""Errors that mean that the group gave our partitions to another consumer, which gets the messages again."""


_HEADERS_OF: Final = methodcaller("headers")
"""Reads a record's headers from C code. For a header whose name is not UTF-8, confluent-kafka returns a list with
holes and leaves an error set; a plain call on Python 3.13 does not look for that error, and the holes end the
process."""

_open: set[Producer] = set()
"""The open producers. They are kept alive in a forked child, which has no threads of theirs: destroying them there
would wait for those threads."""


def check(address: Address) -> None:
    address.allow({"group"}, dotted=True)
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", address.name) or address.name in (".", ".."):
        raise address.invalid("a topic's name has letters, digits, dots, dashes and underscores, 249 at most")
    for name in address.options:
        if name in _OURS:
            raise address.invalid(f"the option {name} cannot be set here")
    client(address, Producer, _PRODUCER, connect=False)
    client(address, Consumer, _settings(address, "check"), connect=False).close()


def _settings(address: Address, group: str) -> dict[str, str]:
    session = address.number("session.timeout.ms", int(_CONSUMER["session.timeout.ms"]), 1, 3_600_000)
    return {**_CONSUMER, "heartbeat.interval.ms": str(max(1, session // 4)), "group.id": group}


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
        self._producer = client(address, Producer, {**_PRODUCER, **timeout})
        self.closed = False
        self._polling = threading.Thread(target=self._poll_reports, name="hipq-kafka", daemon=True)
        _open.add(self._producer)
        self._polling.start()

    def send(self, body: bytes, key: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        report: SimpleQueue[KafkaError | None] = SimpleQueue()
        error: KafkaError | None = KafkaError(KafkaError._FATAL, "the producer ended")
        # without a report librdkafka has lost the message, and ending the producer keeps it from being sent
        with suppress(Empty):
            try:
                self._producer.produce(
                    self._topic, body, key, headers=headers, on_delivery=lambda error, _record: report.put(error)
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
        with suppress(KafkaException, RuntimeError):
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


class KafkaSource:
    """A consumer. librdkafka lets several threads call one at the same time, but whoever calls one while it is being
    closed ends the process. So after `close` nothing calls it any more, and it is closed when no commit runs."""

    def __init__(self, address: Address, group: str, _checkpoints: Checkpoints) -> None:
        if not group:
            raise address.invalid("say which group reads it, with ?group=NAME")
        self._address = address
        self._background = BackgroundError(address)
        self._handle = client(address, Consumer, {**_settings(address, group), "error_cb": self._background})
        self._closed = False
        self._ending = threading.Lock()
        """Held while a commit runs and while the consumer is being closed."""
        try:
            # nothing is subscribed yet, so polling for records returns only errors
            self._background.look(self._consumer, REACH_SECONDS, poll_errors=lambda: self._consume(1, 0))
            self._consumer.subscribe([address.name])
        except BaseException:
            self.close()
            raise

    @property
    def _consumer(self) -> Any:
        if self._closed:
            raise self._address.unavailable("this source was closed")
        return self._handle

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        records = self._consume(1, seconds)
        if not records and self._background.has_error:
            # librdkafka does not always report that the last server has gone
            records = self._consume(1, RETURN_SECONDS)
            if not records:
                self._background.look(self._consumer, LOOK_SECONDS)
        if records:
            self._background.clear()
            records += self._consume(most - 1, GATHER_SECONDS) if most > 1 else []
        return [_message(one) for one in records]

    def done(self, messages: Sequence[Message]) -> None:
        ends: dict[int, int] = {}
        for message in messages:
            partition, offset = message.handle
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        # Partitions that the group took from this consumer meanwhile are left out: a commit would set back their new
        # reader.
        ours = {one.partition for one in self._consumer.assignment()}
        ends = {partition: end for partition, end in ends.items() if partition in ours}
        if not ends:
            return
        offsets = [TopicPartition(self._address.name, partition, end) for partition, end in ends.items()]
        for error in self._commit(offsets):
            if error is not None and error.code() not in _NOT_OURS_NOW:
                if not self._background.explains(error):  # what comes meanwhile is delivered again to another source
                    self._background.look(self._consumer, REACH_SECONDS, poll_errors=lambda: self._consume(1, 0))
                raise self._background.error(error)

    def _commit(self, offsets: list[TopicPartition]) -> list[KafkaError | None]:
        """Commit, and wait for COMMIT_SECONDS at most: if the server goes away at the wrong moment, librdkafka waits
        until it is back."""
        answer: SimpleQueue[list[KafkaError | None]] = SimpleQueue()

        def commit() -> None:
            try:
                with self._ending:
                    answer.put([one.error for one in self._handle.commit(offsets=offsets, asynchronous=False)])
            except KafkaException as refused:
                answer.put([refused.args[0]])
            except RuntimeError:  # nobody waits any more: the source was closed meanwhile
                pass

        threading.Thread(target=commit, name="hipq-kafka-commit", daemon=True).start()
        try:
            return answer.get(timeout=COMMIT_SECONDS)
        except Empty:
            return [KafkaError(KafkaError._TIMED_OUT)]

    def lag(self) -> int | None:
        ours = self._consumer.assignment()
        if not ours:
            return None
        total = 0
        try:
            for one in self._consumer.committed(ours, timeout=REACH_SECONDS):
                low, high = self._consumer.get_watermark_offsets(one, cached=True)
                if high < 0:  # nothing was fetched from this partition yet
                    low, high = self._consumer.get_watermark_offsets(one, timeout=REACH_SECONDS)
                total += max(0, high - max(one.offset, low, 0))
        except KafkaException as refused:
            raise self._background.error(refused.args[0]) from None
        return total

    def close(self) -> None:
        self._closed = True
        closing = threading.Thread(target=self._leave, name="hipq-kafka-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)  # closing tells the group, whose server may hang

    def _leave(self) -> None:
        """Unassign the partitions before closing. A rebalance during `close` may wait for ever for the ending
        librdkafka, and confluent-kafka holds Python's lock meanwhile: the whole process would stand still."""
        with self._ending, suppress(KafkaException, RuntimeError):
            self._handle.unsubscribe()
            until = time.monotonic() + GIVE_UP_SECONDS
            while self._handle.assignment() and time.monotonic() < until:
                self._handle.consume(1, 0.05)
            self._handle.close()

    def _consume(self, most: int, seconds: float) -> list[Record]:
        found = []
        for record in self._consumer.consume(most, seconds):
            error = record.error()
            if error is None:
                found.append(record)
            elif error.fatal() or not (error.code() in _PASSING or error.retriable()) or error.code() in NO_TOPIC:
                raise self._background.error(error)
            else:
                Log.log(logging.DEBUG, "%s: %s", self._address, error.str())
        return found


sender, source = KafkaSender, KafkaSource


def _message(record: Record) -> Message:
    topic, partition, offset = record.topic() or "", record.partition(), record.offset()
    body, name, key = record.value() or b"", f"{topic}-{partition}-{offset}", _text(record.key())
    return Message(body, name, key=key, headers=_headers(record), subject=topic, handle=(partition, offset))


def _headers(record: Record) -> dict[str, str]:
    try:
        pairs: Any = _HEADERS_OF(record) or ()
        return {name: _text(value) for name, value in pairs}
    # a header's name is not text: confluent-kafka then returns no headers at all
    except (UnicodeDecodeError, SystemError):
        return {}


def _text(value: bytes | str | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
