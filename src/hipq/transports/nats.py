"""NATS JetStream:
`nats://user:password@server:4222,other:4222/SUBJECT?stream=..&group=..&ack_wait=30&tls=true&token=..`

A message goes to the stream that takes its subject. A group is a durable pull consumer of that stream, and each source
of the group requests some messages at a time. Each message is acknowledged by itself; an unacknowledged one is
delivered again after `ack_wait` seconds without a sign of life, or at once if its source is closed properly.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Final

from nats.aio.msg import Msg
from nats.errors import BadHeaderError
from nats.errors import Error as NatsError
from nats.js import api
from nats.js.errors import NotFoundError

from hipq.errors import TransportUnavailable
from hipq.transports.address import Address
from hipq.transports.base import KEY_HEADER, Checkpoints, Message, Outgoing, key_in, quoted
from hipq.transports.loop import SECONDS, LoopSender, LoopSource
from hipq.transports.nats_connection import PORT, NatsConnection

ACK_WAIT: Final = 30
PULL_SECONDS: Final = 30.0
"""How long the server keeps a request for messages open."""
PULL_BYTES: Final = 64 << 20
"""Bytes the server sends at most for one request, so that a thousand large messages do not fill the memory."""
MAX_ACK_PENDING: Final = 50_000
"""Unacknowledged messages of the whole group; each source requests what it can hold."""


def check(address: Address) -> None:
    address.allow({"stream", "group", "ack_wait", "tls", "token"})
    address.servers(PORT)
    address.number("ack_wait", ACK_WAIT, 1, 86_400)
    if address.options.get("tls", "false") not in ("true", "false"):
        raise address.invalid(f"tls must be true or false, not {address.options['tls']!r:.40}")
    if "token" in address.options and address.user:
        raise address.invalid("a token and a user are one too many")
    if not re.fullmatch(r"[^\s.*>/\\]{1,200}", address.options.get("stream", "any")):
        raise address.invalid(f"{address.options['stream']!r:.40} is no name of a stream")
    words = address.name.split(".")
    wild = all(word == "*" or not {"*", ">"} & set(word) or (word == ">" and word is words[-1]) for word in words)
    if not all(words) or not wild or re.search(r"\s", address.name) or len(address.name.encode()) > 200:
        raise address.invalid(f"{address.name!r:.60} is no subject; one looks like payments.in")


class NatsSender(LoopSender):
    """Asks the stream for a receipt of each message. A header Nats-Msg-Id would let the stream drop a second copy,
    but there is none: no message is sent twice, and a job's retry sends another message on purpose."""

    def __init__(self, address: Address) -> None:
        if {"*", ">"} & set(address.name.split(".")):
            raise address.invalid("messages are sent to one subject, without * and >")
        super().__init__(address)
        self._inbox = ""
        self._numbers = count()
        self._receipts: dict[str, asyncio.Future[Msg]] = {}

    async def _send(self, message: Outgoing) -> None:
        headers = self._headers(message)
        connection = await self._connected()
        size = len(message.body) + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items()) + 12
        most = connection.client.max_payload
        if size > most:
            raise self._address.invalid(f"{size} bytes with headers are too many: the server's max_payload is {most}")
        number = f"{self._inbox}.{next(self._numbers)}"
        receipt = self._receipts[number] = asyncio.get_running_loop().create_future()
        try:
            await connection.client.publish(self._address.name, message.body, reply=number, headers=headers or None)
            self._look(await receipt)
        except (BadHeaderError, UnicodeEncodeError):
            raise self._address.invalid("a header has characters that NATS cannot carry") from None
        except NatsError as error:
            raise connection.unavailable(error) from None
        except asyncio.CancelledError:  # the time is up: a message still in a buffer must not be sent any more
            connection.cut()
            raise
        finally:
            del self._receipts[number]

    def _look(self, receipt: Msg) -> None:
        if (receipt.headers or {}).get(api.Header.STATUS) == "503":
            why = f"no JetStream stream takes subject {self._address.name}: create one, or start what listens to it"
            raise self._address.unavailable(why)
        try:
            found = json.loads(receipt.data)
            error, stored = found.get("error"), "stream" in found
        except (ValueError, AttributeError):
            error, stored = None, False
        if error:
            raise self._address.unavailable(f"the stream did not take it: {error.get('description')}")
        if not stored:
            raise self._address.unavailable(f"{self._address.name} was answered by something that is no stream")

    async def _open(self) -> NatsConnection:
        connection = NatsConnection(self._address, self._failed)
        await connection.open()
        self._inbox = connection.client.new_inbox()
        await connection.client.subscribe(f"{self._inbox}.*", cb=self._receipt)
        return connection

    async def _receipt(self, message: Msg) -> None:
        waiting = self._receipts.get(message.subject)
        if waiting and not waiting.done():
            waiting.set_result(message)

    def _failed(self, error: TransportUnavailable) -> None:
        for waiting in self._receipts.values():
            if not waiting.done():
                waiting.set_exception(error)

    def _headers(self, message: Outgoing) -> dict[str, str]:
        headers = dict(message.headers)
        if message.key:
            headers.setdefault(KEY_HEADER, quoted(message.key))
        for name, value in headers.items():
            if value != value.strip() or "\n" in value or "\r" in value:
                why = "starts or ends with a space, or has several lines"
                raise self._address.invalid(f"the header {name!r:.40} {why}")
        if "stream" in self._address.options:
            headers[api.Header.EXPECTED_STREAM.value] = self._address.options["stream"]
        return headers


class NatsSource(LoopSource):
    errors = (OSError, NatsError, asyncio.CancelledError)  # a TimeoutError is an OSError
    _connection: NatsConnection

    def __init__(self, address: Address, group: str, _checkpoints: Checkpoints) -> None:
        self._durable = durable(group, address.name)
        self._ack_wait = float(address.number("ack_wait", ACK_WAIT, 1, 86_400))
        self._asked = 0
        self._asked_until = 0.0
        super().__init__(address, NatsConnection(address, lambda _: self._news.set()))

    def _message(self, found: Msg) -> Message:
        words = found.reply.split(".")  # $JS.ACK.stream.consumer.delivered.sequence..., since 2.2 maybe with a domain
        sequence = words[5] if len(words) == 9 else words[7]
        headers = {name.lower(): value for name, value in (found.headers or {}).items()}
        name, key, subject = f"{self._stream}-{sequence}", key_in(headers), found.subject
        return Message(found.data, name, key=key, headers=headers, subject=subject, handle=found.reply, is_quoted=True)

    async def _open(self) -> None:
        await self._connection.open()
        self._stream = await self._found_stream()
        await self._join()
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._durable}"
        self._inbox = self._connection.client.new_inbox()
        self._subscription = await self._connection.client.subscribe(self._inbox, cb=self._deliver)
        self._alive = asyncio.create_task(self._stay_alive())

    async def _found_stream(self) -> str:
        """The stream that takes the subject; it is created if there is none."""
        subject, js = self._address.name, self._connection.js
        if named := self._address.options.get("stream"):
            try:
                await js.stream_info(named)
            except NotFoundError:
                why = f"there is no stream {named}: create it, or leave the option stream out"
                raise self._address.unavailable(why) from None
            return named
        question = json.dumps({"subject": subject}).encode()
        answer = await self._connection.client.request("$JS.API.STREAM.NAMES", question, timeout=SECONDS)
        names: list[str] = json.loads(answer.data).get("streams") or []
        if len(names) > 1:
            every = ", ".join(names)
            raise self._address.invalid(f"{every} all have messages on {subject}: say which, ?stream={names[0]}")
        if not names:
            names = [valid(subject)]
            await js.add_stream(api.StreamConfig(name=names[0], subjects=[subject], storage=api.StorageType.FILE))
        return names[0]

    async def _join(self) -> None:
        js, subject, explicit = self._connection.js, self._address.name, api.AckPolicy.EXPLICIT
        wanted = api.ConsumerConfig(
            durable_name=self._durable, filter_subject=subject, ack_policy=explicit, ack_wait=self._ack_wait,
            max_ack_pending=MAX_ACK_PENDING,
        )  # fmt: skip
        try:
            there = (await js.consumer_info(self._stream, self._durable)).config
        except NotFoundError:
            await js.add_consumer(self._stream, wanted)
            return
        if there.deliver_subject or there.ack_policy != explicit or there.filter_subject != subject:
            raise self._address.invalid(
                f"the consumer {self._durable} of {self._stream} is another one: "
                f"it must be a pull consumer with explicit acknowledgement of {subject}"
            )
        if "ack_wait" in self._address.options and there.ack_wait != self._ack_wait:
            await js.add_consumer(self._stream, there.evolve(ack_wait=self._ack_wait))
        elif there.ack_wait:
            self._ack_wait = there.ack_wait

    async def _receive(self, most: int, seconds: float) -> list[Msg]:
        until = time.monotonic() + seconds
        while not self._connection.lost:
            if found := self._taken(most):
                return found
            self._news.clear()
            await self._ask(most)
            if not await self._wait(until - time.monotonic()):
                return []
        raise self._connection.lost

    async def _ask(self, most: int) -> None:
        """Request as many messages as there is room for, unless enough are on their way."""
        if time.monotonic() > self._asked_until:
            self._asked = 0
        room = most - self._asked - len(self._held)
        if room > 0 and (not self._asked or room >= most // 2):
            self._asked += room
            self._asked_until = time.monotonic() + PULL_SECONDS + 1
            question = {"batch": room, "expires": int(PULL_SECONDS * 1e9), "max_bytes": PULL_BYTES}
            await self._connection.client.publish(self._next, json.dumps(question).encode(), reply=self._inbox)

    async def _deliver(self, message: Msg) -> None:
        if message.reply.startswith("$JS.ACK."):
            self._asked -= 1
            self._ready.append(message)
            self._held[message.reply] = None
        else:
            self._pull_ended(message.headers or {})
        self._news.set()

    def _pull_ended(self, headers: dict[str, str]) -> None:
        """Note that a request has ended, with the number of messages it would still have delivered."""
        why = headers.get(api.Header.DESCRIPTION) or ""
        left = headers.get("Nats-Pending-Messages", "")
        self._asked = max(0, self._asked - int(left)) if left.isdigit() else 0
        if headers.get(api.Header.STATUS) not in ("404", "408", "409") or "Consumer Deleted" in why:
            self._connection.lose(f"{self._stream} does not deliver any more ({why or 'there is no such consumer'})")

    async def _acknowledge(self, handles: Sequence[str]) -> None:
        if self._connection.lost:
            raise self._connection.lost
        for reply in handles:
            if reply in self._held:
                del self._held[reply]
                await self._connection.client.publish(reply)
        await self._connection.client.flush(int(SECONDS))

    async def _stay_alive(self) -> None:
        """Tell the server that messages are in progress while the caller's transaction takes its time: otherwise
        others get them."""
        while not self._connection.lost:
            await asyncio.sleep(self._ack_wait / 3)
            with suppress(NatsError):
                for reply in list(self._held):
                    await self._connection.client.publish(reply, Msg.Ack.Progress)

    async def _lag(self) -> int:
        info = await self._connection.js.consumer_info(self._stream, self._durable)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def _leave(self) -> None:
        client = self._connection.client
        if client.is_connected:
            if self._asked:
                # The server picks no more messages for the pull, but the ones it has picked already may be sent after
                # it confirmed that. All replies of a consumer leave in order, so this request's is behind them; no
                # message is as small as it wants.
                await client._send_unsubscribe(self._subscription._id)
                with suppress(NatsError, TimeoutError):
                    await client.request(self._next, b'{"batch": 1, "no_wait": true, "max_bytes": 1}', timeout=1)
            await self._subscription.drain()  # type: ignore[no-untyped-call]
            for reply in list(self._held):
                await client.publish(reply, Msg.Ack.Nak)
            await client.flush(2)
        await self._connection.close()


sender, source = NatsSender, NatsSource


def durable(group: str, subject: str) -> str:
    """The consumer's name. It includes the subject, because a group may listen to several subjects of one stream."""
    return valid(f"{group}-{subject}")


def valid(name: str) -> str:
    """The name, if a stream or a consumer may have it; else a similar one that differs for every name."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:100]
    is_alone = "_" not in name and plain == name.replace(".", "_")
    return plain if is_alone else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
