"""A place on a server, what a test opens there, and how a test reads and fills it."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

import pytest

from hipq import transports
from hipq.errors import HipqError, TransportUnavailable
from hipq.transports.address import Address, address
from hipq.transports.base import Checkpoints, Message, Outgoing, Sender, Source
from tests.transports.checkpoints import Nowhere

PASSWORD = "s3cret-pass"
KEY = "key ü 1"


class Link:
    """One place on a server that no other test uses, and all that a test has opened there."""

    headers: ClassVar[Mapping[str, str]] = {"Traceparent": "00-1", "hipq-job": "7"}
    """Headers of a message that is sent."""
    ordered: ClassVar[bool] = True
    ordered_again: ClassVar[bool] = True
    """Whether messages keep their order when they come again."""
    durable: ClassVar[bool] = True
    """Whether the server still has its messages after a restart."""
    quick: ClassVar[tuple[float, int, int]] = (0.1, 6, 20)
    """A lone message takes less than these seconds, so often, of so many."""
    many: ClassVar[tuple[int, int]] = (1000, 200)
    """So many messages are many, and so many of them come at once."""
    crash_options: ClassVar[Mapping[str, str]] = {}
    """With these options, what a killed process held comes again within seconds."""
    acknowledged: ClassVar[Sequence[int]] = (0, 1)
    """Which of six messages are acknowledged: the first ones, where only a position is kept."""
    surely: ClassVar[int] = 1
    """How many messages a process that is killed has acknowledged: none, where nobody confirms an acknowledgement."""
    checkpoints_there: ClassVar[str] = "None"
    """The checkpoints of a source in another process."""
    gone: ClassVar[str] = r"nobody listens at 127\.0\.0\.1:\d+ \(connection refused\)$"
    """What a sender says of a server that was stopped."""
    drops_odd_headers: ClassVar[bool] = False
    """Whether some servers keep a message with odd headers, and drop the headers."""
    broke: ClassVar[str] = r"the connection to 127\.0\.0\.1:\d+ broke"
    """What a source says of a server that was stopped."""
    first_lag: ClassVar[int | None] = 0
    """What a source that has received nothing yet says of its lag."""
    no_host: ClassVar[str] = "there is no host nowhere.invalid, or its name cannot be looked up now"

    def __init__(self) -> None:
        self._opened: list[Sender | Source] = []

    # -- what each transport says for itself ------------------------------------------------------------------------
    def url(self, **options: str) -> str:
        raise NotImplementedError

    def url_at(self, server: str) -> str:
        """A URL with a password, of a server where nobody may listen."""
        return f"{self.where.scheme}://me:{PASSWORD}@{server}/a"

    def checkpoints(self) -> Checkpoints:
        return Nowhere()

    def received(self, key: str, headers: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """The headers with which a message arrives that was sent with this key and these."""
        return {name.lower(): value for name, value in headers.items()}

    def put_odd(self) -> Sequence[tuple[bytes, Mapping[str, str]]]:
        """Put messages there that hipq would not send; their bodies and headers as they are to be received."""
        raise NotImplementedError

    def create(self) -> None:
        """Make the place again on a server that has forgotten it."""

    def calls_that_break(self, source: Source, messages: Sequence[Message]) -> Sequence[Callable[[], object]]:  # noqa: ARG002
        """What fails, besides `receive`, when the server of a source was stopped."""
        return ()

    # -- what tests do with it --------------------------------------------------------------------------------------
    @property
    def where(self) -> Address:
        return address(self.url())

    def sender(self) -> Sender:
        made = transports.open_sender(self.where)
        self._opened.append(made)
        return made

    def source(self, group: str = "shop", /, **options: str) -> Source:
        made = transports.source(address(self.url(**options)), group, self.checkpoints())
        self._opened.append(made)
        return made

    def listening(self, group: str = "shop", /, **options: str) -> Source:
        """A source of a place that is still empty, once the server knows of the source."""
        made = self.source(group, **options)
        assert list(made.receive(1000, 0)) == []
        return made

    def close(self) -> None:
        for one in reversed(self._opened):
            one.close()

    def in_order(self, messages: Sequence[Message], again: bool = False) -> list[Message]:
        """The messages as they came, where their order is promised: the first time, or when they come `again`."""
        promised = self.ordered and (self.ordered_again or not again)
        return list(messages) if promised else sorted(messages, key=lambda message: (message.body, message.id))


def drained(one: Source, count: int, most: int = 1000, seconds: float = 30, done: bool = True) -> list[Message]:
    """This many messages, acknowledged if `done`."""
    found: list[Message] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        some = one.receive(most, 0.2)
        if done:
            one.done(some)
        found += some
    return found


def come_again(one: Source, count: int, seconds: float = 30) -> list[Message]:
    """This many different messages, acknowledged, each as it came first: NATS gives one twice, at times."""
    found: dict[str, Message] = {}
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        some = one.receive(1000, 0.2)
        one.done(some)
        found |= {message.id: message for message in some if message.id not in found}
    return list(found.values())


def held(one: Source, count: int, most: int = 1000) -> list[Message]:
    """This many messages, not acknowledged."""
    found = drained(one, count, most, done=False)
    assert len(found) == count
    return found


def ids(messages: Sequence[Message]) -> list[tuple[str, bytes]]:
    return [(message.id, message.body) for message in messages]


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return [message.body for message in messages]


def fill(out: Sender, count: int) -> list[bytes]:
    every = [b"%03d" % number for number in range(count)]
    for body in every:
        out.send(Outgoing(body, KEY), 10)
    return every


def eventually(ask: Callable[[], object], expected: object, seconds: float = 30) -> None:
    """Servers count acknowledgements, and systems close files, a moment later."""
    until = time.monotonic() + seconds
    while (found := ask()) != expected and time.monotonic() < until:
        time.sleep(0.02)
    assert found == expected


def said(where: Address, checkpoints: Checkpoints) -> set[str]:
    """What a sender and a source say of trouble; the password is nowhere, whichever way one looks."""

    def listen() -> None:
        with closing(transports.source(where, "shop", checkpoints)) as source:
            source.receive(1, 1)

    sentences = set()
    with closing(transports.open_sender(where)) as out:
        attempts: tuple[Callable[[], object], ...] = (lambda: out.send(Outgoing(b"x"), 5), listen)
        for attempt in attempts:
            with pytest.raises(TransportUnavailable) as caught:
                attempt()
            assert PASSWORD not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
            assert "\n" not in str(caught.value)
            sentences.add(str(caught.value))
        assert PASSWORD not in repr(out) + repr(vars(out).get("_connection"))
    return sentences


def wrong(kind: type[HipqError], call: Callable[[], Any]) -> str:
    """The sentence of the error, which must show no password, wherever one looks."""
    with pytest.raises(kind) as caught:
        call()
    everything = repr(caught.value) + "".join(traceback.format_exception(caught.value))
    assert "sesame" not in everything
    assert str(caught.value).count("\n") == 0
    return str(caught.value)
