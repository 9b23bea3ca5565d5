"""MQTT against a real server."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, ClassVar
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hipq import transports
from hipq.errors import Invalid, TransportUnavailable
from hipq.transports import mqtt as transport
from hipq.transports.address import address
from hipq.transports.base import Outgoing, Sender, Source
from hipq.transports.mqtt import MqttSource
from tests.brokers.mqtt import PASSWORD, OwnMosquitto, mqtt_url
from tests.transports.contract import CrashContract, GroupContract, HoldContract, SharingContract, StreamContract
from tests.transports.link import Link, bodies, drained, wrong


class Shelf:
    """What a group has agreed on: who has which part, until when."""

    def __init__(self, seconds: float = 60.0) -> None:
        self.seconds = seconds
        self.claims: dict[str, tuple[object, float]] = {}
        self.known: dict[str, str] = {}

    def owners(self) -> dict[str, object]:
        return {part: owner for part, (owner, until) in self.claims.items() if until > time.monotonic()}


class ShelfPlaces:
    """One source's view of it."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def take(self, part: str) -> str | None:
        if self._shelf.owners().get(part, self) is not self:
            return None
        self._shelf.claims[part] = (self, time.monotonic() + self._shelf.seconds)
        return self._shelf.known.setdefault(part, "")

    def keep(self, part: str, position: str) -> bool:
        if self._shelf.claims.get(part, (None, 0))[0] is not self:
            return False
        self._shelf.known[part] = position
        return self.take(part) is not None

    def read(self) -> Mapping[str, str]:
        return dict(self._shelf.known)

    def leave(self, part: str) -> None:
        if self._shelf.claims.get(part, (None, 0))[0] is self:
            del self._shelf.claims[part]


@contextmanager
def sender_of(url: str) -> Iterator[Sender]:
    with closing(transports.open_sender(address(url))) as sender:
        yield sender


@contextmanager
def source_of(url: str, shelf: Shelf, group: str = "shop") -> Iterator[Source]:
    """A source that has subscribed, if it got a session; nothing waits for it."""
    with again_of(url, shelf, group) as source:
        assert source.receive(1000, 0) == []
        yield source


@contextmanager
def again_of(url: str, shelf: Shelf, group: str = "shop") -> Iterator[Source]:
    with closing(transports.source(address(url), group, ShelfPlaces(shelf))) as source:
        yield source


@pytest.fixture(scope="module")
def broker() -> Iterator[OwnMosquitto]:
    """One that keeps all it is given, as the shared one does not."""
    with OwnMosquitto() as server:
        yield server


@pytest.fixture
def topic() -> str:
    return f"hipq-test/{uuid4().hex}/in"


@pytest.fixture
def url(broker: OwnMosquitto, topic: str) -> str:
    return f"{broker.url}/{topic}?expiry=60"


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@contextmanager
def raw(url: str) -> Iterator[paho.Client]:
    """The client library itself, to do what others do."""
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    host, _, port = url.partition("://")[2].partition("/")[0].partition(":")
    client.connect(host, int(port))
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def properties(**values: Any) -> Any:
    made: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


class MqttLink(Link):
    no_host = "there is no host nowhere.invalid:1883, or its name cannot be looked up now"
    headers: ClassVar = {"Hipq-Job": "7", "traceparent": "00-☃"}
    quick = (0.1, 5, 15)
    surely = 0
    checkpoints_there = "Anything()"
    broke = r"the connection to 127\.0\.0\.1:\d+ broke|nobody listens at 127\.0\.0\.1:\d+"

    def __init__(self, server: str) -> None:
        super().__init__()
        self.server = server
        self.topic = f"hipq-test/{uuid4().hex}/in"
        self._shelves: dict[str, Shelf] = {}
        self._group = ""

    def url(self, **options: str) -> str:
        return f"{self.server}/{self.topic}?{urlencode({'expiry': '60', **options})}"

    def source(self, group: str = "shop", /, **options: str) -> Source:
        self._group = options.get("group", group)
        return super().source(group, **options)

    def checkpoints(self) -> ShelfPlaces:
        return ShelfPlaces(self._shelves.setdefault(self._group, Shelf()))

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        strange = properties(UserProperty=[("a", "\ufeffb"), ("a", "2")], CorrelationData=b"\xff1", ContentType="x/y")
        strange.MessageExpiryInterval, strange.ResponseTopic, strange.PayloadFormatIndicator = 100, "re/ply", 0
        with raw(self.server) as client:
            for body, qos, props in ((b"\xff\x00", 1, strange), (b"", 1, None), (b"two", 2, None)):
                client.publish(self.topic, body, qos, properties=props).wait_for_publish(5)
        return [(b"\xff\x00", {"a": "2", "content-type": "x/y"}), (b"", {}), (b"two", {})]


class TestContract(StreamContract, HoldContract, CrashContract, GroupContract):
    kind, server = MqttLink, OwnMosquitto

    @pytest.fixture
    def link(self, broker: OwnMosquitto) -> Iterator[MqttLink]:
        with closing(MqttLink(broker.url)) as link:
            yield link

    def test_two_sources_share_and_together_see_everything(self, link: MqttLink) -> None:
        SharingContract.test_two_sources_share_and_together_see_everything(SharedTopic(), link)
        assert len(link._shelves["shop"].known) == 2


class SharedTopic(SharingContract):
    share: ClassVar = {"share": "2"}


# -- what goes in comes out -----------------------------------------------------------------------------------------


def test_on_the_server_that_everybody_has_with_its_usual_settings_messages_come_too(topic: str, shelf: Shelf) -> None:
    url = f"{mqtt_url()}/{topic}?expiry=60"
    with sender_of(url) as sender, source_of(url, shelf) as source, raw(url) as client:
        sender.send(Outgoing(b"x" * (1 << 20), "kä-1"), 5)
        client.publish(topic, b"zero", 0)
        found = drained(source, 2)
        assert [(len(message.body), message.key) for message in found] == [(1 << 20, "kä-1"), (4, "")]
        assert source.lag() is None


def test_equal_messages_without_an_id_are_one_and_unequal_ones_are_not(url: str, topic: str, shelf: Shelf) -> None:
    url = url.replace(topic, f"{topic}/%23")
    with source_of(url, shelf) as source, raw(url) as client:
        client.publish(f"{topic}/a", b"x", 1)
        client.publish(f"{topic}/a", b"x", 1)
        client.publish(f"{topic}/b", b"x", 1)
        client.publish(f"{topic}/a", b"y", 1)
        client.publish(f"{topic}/a", b"x", 1, properties=properties(CorrelationData=b"k"))
        client.publish(f"{topic}/a", b"x", 1, properties=properties(UserProperty=[("k", "v")]))
        client.publish(f"{topic}/a", b"x", 1, properties=properties(UserProperty=[("hipq-id", "bad\u00ad" * 80)]))
        found = drained(source, 7)
        assert [message.subject[-1] for message in found] == ["a", "a", "b", "a", "a", "a", "a"]
        assert found[0].id == found[1].id
        assert len({message.id for message in found}) == 6
        assert all(message.id.isprintable() and len(message.id) < 300 for message in found)


def test_a_retained_message_comes_once_and_not_at_every_start(url: str, topic: str, shelf: Shelf) -> None:
    with raw(url) as client:
        client.publish(topic, b"old", 1, retain=True).wait_for_publish(5)
        with again_of(url, shelf) as source:
            assert bodies(drained(source, 1)) == [b"old"]
        with source_of(url, shelf) as source:
            assert source.receive(10, 0.3) == []
        client.publish(topic, b"", 1, retain=True).wait_for_publish(5)


# -- acknowledged or not --------------------------------------------------------------------------------------------
def test_what_was_not_acknowledged_comes_again_to_another_source_after_close(url: str, shelf: Shelf) -> None:
    with sender_of(url) as sender:
        with source_of(url, shelf) as first, source_of(url, shelf) as other:
            for number in range(5):
                sender.send(Outgoing(b"%d" % number), 5)
            taken = drained(first, 5, done=False)
            assert bodies(taken) == [b"0", b"1", b"2", b"3", b"4"]
            first.done(taken[:2])
            assert other.receive(10, 0.1) == []  # it stands by
            first.close()
            started = time.monotonic()
            again = drained(other, 3)
            assert time.monotonic() - started < 40, "a session that nobody gave up is free after a minute"
            assert [message.id for message in again] == [message.id for message in taken[2:]]
            assert bodies(again) == [b"2", b"3", b"4"]
        with source_of(url, shelf) as another:
            assert another.receive(10, 0.5) == []


def test_what_was_sent_while_nobody_listened_comes_in_order_and_in_big_batches(url: str, shelf: Shelf) -> None:
    with source_of(url, shelf):
        pass
    with sender_of(url) as sender, raw(url) as client:
        for number in range(2000):
            info = client.publish(address(url).name, b"%d" % number, 1)
        info.wait_for_publish(10)
        sender.send(Outgoing(b"2000"), 5)
    with again_of(url, shelf) as source:
        sizes: list[int] = []
        found: list[bytes] = []
        until = time.monotonic() + 30
        while len(found) < 2001 and time.monotonic() < until:
            some = source.receive(1000, 1)
            time.sleep(0.03)  # a transaction
            source.done(some)
            sizes.append(len(some))
            found += bodies(some)
    assert found == [b"%d" % number for number in range(2001)]
    assert max(sizes) >= 200


# -- several sources ------------------------------------------------------------------------------------------------


def test_a_session_that_stays_free_is_adopted_by_a_source_that_has_one(
    url: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FREE_SECONDS", 1.0)
    monkeypatch.setattr(transport, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(transport, "RENEW_SECONDS", 0.2)
    url = f"{url}&share=2"
    with source_of(url, shelf) as one, sender_of(url) as sender:
        with source_of(url, shelf):
            started = time.monotonic()
        for number in range(10):
            sender.send(Outgoing(b"%d" % number), 5)
        found = drained(one, 10)
        assert sorted(bodies(found)) == [b"%d" % number for number in range(10)]
        assert time.monotonic() - started > 1.0
        assert len(shelf.owners()) == 2


def test_what_was_kept_for_sessions_of_a_larger_share_is_still_fetched(
    url: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "FREE_SECONDS", 0.1)
    monkeypatch.setattr(transport, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(transport, "RENEW_SECONDS", 0.1)
    wide = f"{url}&share=2"
    with source_of(wide, shelf), source_of(wide, shelf), sender_of(url) as sender:
        for number in range(10):
            sender.send(Outgoing(b"%d" % number), 5)
    with again_of(url, shelf) as source, sender_of(url) as sender:
        first = drained(source, 10)
        assert sorted(bodies(first)) == [b"%d" % number for number in range(10)]
        for number in range(10):
            sender.send(Outgoing(b"%d" % number), 5)
        again = drained(source, 10) + drained(source, 1, seconds=0.5)
        assert bodies(again) == [b"%d" % number for number in range(10)]  # each of them once


def test_a_source_that_lost_its_claim_gives_the_session_up(
    url: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RENEW_SECONDS", 0.2)
    with source_of(url, shelf) as paused, sender_of(url) as sender:
        sender.send(Outgoing(b"1"), 5)
        taken = drained(paused, 1, done=False)
        shelf.claims.clear()  # it paused for longer than a claim lasts
        with again_of(url, shelf) as other:
            again = drained(other, 1, done=False)
            assert [message.id for message in again] == [message.id for message in taken]
            paused.done(taken)  # which the server no longer takes from it
            assert drained(paused, 1, seconds=0.5) == []
            other.done(again)
            sender.send(Outgoing(b"2"), 5)
            assert bodies(drained(other, 1)) == [b"2"]
            assert len(shelf.owners()) == 1


def test_a_source_whose_claim_is_somebody_elses_stops_listening_before_that_one_comes(
    url: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "RENEW_SECONDS", 0.2)
    with source_of(url, shelf) as paused, sender_of(url) as sender:
        shelf.claims["session-0"] = (stranger := object(), time.monotonic() + 60)
        assert drained(paused, 1, seconds=0.5) == []
        sender.send(Outgoing(b"1"), 5)
        assert drained(paused, 1, seconds=0.5) == []
        assert shelf.owners() == {"session-0": stranger}
        shelf.claims.clear()
        assert bodies(drained(paused, 1)) == [b"1"]  # it stood by


# -- how fast, how many ---------------------------------------------------------------------------------------------


def test_a_source_takes_no_more_than_it_may_hold(url: str, shelf: Shelf) -> None:
    with again_of(url, shelf) as source, sender_of(url) as sender:
        assert source.receive(30, 0) == []
        for number in range(100):
            sender.send(Outgoing(b"%d" % number), 5)
        first = drained(source, 30, done=False, most=30)
        assert len(first) == 30
        assert drained(source, 1, done=False, seconds=0.5, most=30) == []
        source.done(first[:10])
        time.sleep(0.3)  # Mosquitto 2.0 sends more then than it was told to: they must wait on the way
        assert isinstance(source, MqttSource)
        assert len(source._arrived) <= 10
        assert bodies(drained(source, 10, done=False, most=30)) == [b"%d" % number for number in range(30, 40)]


# -- servers that stop, hang, are not there -------------------------------------------------------------------------


@pytest.mark.parametrize("restarted", [False, True])
def test_a_session_with_more_on_its_way_than_a_new_source_takes_is_served(
    topic: str, shelf: Shelf, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another has not acknowledged comes ahead of the reply to the subscription, all of it, however few the server
    was told to send; the thread that reads that reply must not wait for room."""
    monkeypatch.setattr("hipq.transports.mqtt_connection.OPEN_SECONDS", 60.0)  # it would wait so long
    with OwnMosquitto() as server:
        url = f"{server.url}/{topic}"
        with source_of(url, shelf) as source, raw(url) as client:
            for number in range(200):
                client.publish(topic, b"%d" % number, 1)
            assert len(drained(source, 200, done=False)) == 200
        if restarted:
            server.restart()
        with again_of(url, shelf) as source:
            found = drained(source, 200, most=5)
        assert bodies(found) == [b"%d" % number for number in range(200)]


def test_a_send_that_was_given_up_is_not_sent_when_the_server_wakes_up(topic: str, shelf: Shelf) -> None:
    with OwnMosquitto() as server:
        url = f"{server.url}/{topic}"
        with source_of(url, shelf) as source, sender_of(url) as sender:
            sender.send(Outgoing(b"first"), 5)
            server.freeze()
            try:
                large = b"x" * (16 << 20)  # more than the buffers between us take
                said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(large), 0.3))
                assert re.fullmatch(
                    rf"{re.escape(url)}: no reply within 0\.\d+ seconds; whether it has the message is not known", said
                )
                started = time.monotonic()
                said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"never"), 0.3))
                late = rf"127\.0\.0\.1:{server.port} did not reply within 0\.\d+ seconds"
                assert re.fullmatch(f"{re.escape(url)}: {late}", said)
                assert time.monotonic() - started < 15
            finally:
                server.thaw()
            sender.send(Outgoing(b"last"), 5)
            assert bodies(drained(source, 2) + drained(source, 1, seconds=0.5)) == [b"first", b"last"]


def test_closing_does_not_hang_on_a_server_that_does(topic: str, shelf: Shelf) -> None:
    with OwnMosquitto() as server:
        url = f"{server.url}/{topic}"
        with source_of(url, shelf) as source, sender_of(url) as sender:
            sender.send(Outgoing(b"x"), 5)
            server.freeze()
            try:
                started = time.monotonic()
                source.close()
                sender.close()
                assert time.monotonic() - started < 15
            finally:
                server.thaw()


def test_what_is_wrong_is_said_in_a_sentence(broker: OwnMosquitto, shelf: Shelf) -> None:
    def fails(url: str) -> str:
        with sender_of(url) as sender, closing(transports.source(address(url), "g", ShelfPlaces(shelf))) as source:
            said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"x"), 5))
            assert wrong(TransportUnavailable, lambda: source.receive(1, 1)) == said
        assert not shelf.owners()
        return said

    refused = "mqtt://me:sesame@127.0.0.1:1/t"
    assert fails(refused) == "mqtt://me@127.0.0.1:1/t: nobody listens at 127.0.0.1:1 (connection refused)"
    unknown = "mqtt://me:sesame@nowhere.invalid/t"
    assert fails(unknown) == f"mqtt://me@nowhere.invalid/t: {MqttLink.no_host}"
    encrypted = f"mqtts://me@127.0.0.1:{broker.port}/t"  # at a port where nobody knows of TLS
    said = fails(encrypted.replace("me@", "me:sesame@")).removeprefix(f"{encrypted}: ")
    assert "no encrypted connection with" in said or "cannot agree on TLS" in said
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with sender_of(f"mqtt://127.0.0.1:{port}/t") as sender:
            said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"x"), 0.5))
        late = r"did not reply within 0\.[45]\d* seconds"  # what was left of half a second when it was asked
        assert re.fullmatch(rf"mqtt://127\.0\.0\.1:{port}/t: 127\.0\.0\.1:{port} {late}", said), said


def test_passwords_permissions_and_limits(shelf: Shelf) -> None:
    with OwnMosquitto(rights="user shop\ntopic readwrite mine/#\n", options="max_packet_size 20000") as server:
        where = f"127.0.0.1:{server.port}"
        url = f"mqtt://shop:{PASSWORD}@{where}/mine/t"
        with sender_of(url) as sender, source_of(url, shelf) as source:
            sender.send(Outgoing(b"x"), 5)
            assert bodies(drained(source, 1)) == [b"x"]
            said = wrong(Invalid, lambda: sender.send(Outgoing(b"x" * 30_000), 5))
            assert said == f"mqtt://shop@{where}/mine/t: 30000 bytes are more than the server takes (20000)"
        for user in ("shop:sesame-2@", ""):
            with sender_of(f"mqtt://{user}{where}/mine/t") as sender:
                said = wrong(TransportUnavailable, partial(sender.send, Outgoing(b"x"), 5))
                assert said.endswith("/mine/t: the server refuses the user name or the password")
        with sender_of(f"mqtt://shop:{PASSWORD}@{where}/yours") as sender:
            said = wrong(TransportUnavailable, lambda: sender.send(Outgoing(b"x"), 5))
            assert said == (
                f"mqtt://shop@{where}/yours: the server does not let the user 'shop' send to this (Not authorized)"
            )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://h/t?size=1", "mqtt://h/t: there is no option 'size'; there are expiry, group, share"),
        ("mqtt://h/t?share=65", "mqtt://h/t: share must be a whole number from 1 to 64, not '65'"),
        ("mqtt://h/t?expiry=1", "mqtt://h/t: expiry must be a whole number from 60 to 4294967294, not '1'"),
        ("mqtt://a,b/t", "mqtt://a,b/t: 'a,b' is no server; one looks like server:1883"),
        ("mqtt://h/a/b+", "mqtt://h/a/b+: + and # stand for whole levels of a topic, # for the last: a/+/c, a/#"),
        ("mqtt://h/a/#/c", "mqtt://h/a/#/c: + and # stand for whole levels of a topic, # for the last: a/+/c, a/#"),
        (
            "mqtt://h/$share/g/t",
            "mqtt://h/$share/g/t: write share=2 after the topic to share it between two, not $share before it",
        ),
    ],
)
def test_a_url_that_cannot_work_is_refused_without_connecting(url: str, said: str) -> None:
    assert wrong(Invalid, lambda: transports.check(address(url))) == said
    assert wrong(Invalid, lambda: transports.open_sender(address(url))) == said


def test_wildcards_are_for_listening_only() -> None:
    for name in ("a/#", "+/b", "#"):
        transports.check(address(f"mqtt://h/{name}"))
        said = wrong(Invalid, partial(transports.open_sender, address(f"mqtt://h/{name}")))
        assert said == f"mqtt://h/{name}: one can listen to a topic with + or #, but not send to it"


def test_headers_that_would_end_the_connection_are_refused(url: str) -> None:
    with sender_of(url) as sender:
        for value in ("\x00", "line\nline", "\ufeff", "x" * 70_000):
            said = wrong(Invalid, partial(sender.send, Outgoing(b"x", "", {"a": value}), 5))
            assert said.endswith(": headers must be printable text of up to 16,000 characters")
        sender.send(Outgoing(b"x", "\x00\n", {"a": "b"}), 5)
