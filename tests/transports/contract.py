"""What every stream transport promises, in sentences that each transport's test file runs against its real server.

A test file describes its transport by a `Link` and inherits the suites that fit: `StreamContract` is for all,
`CrashContract` for those whose server remembers what was acknowledged, `GroupContract` for those whose server knows
groups, `LagContract` for those whose server counts, `SharingContract` for those whose sources take messages from one
place, `HoldContract` for those that are given messages one by one,
`HangingContract` for those that can be made to hang.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, ClassVar

import pytest

from hipq.errors import TransportUnavailable
from hipq.transports.address import address
from hipq.transports.base import Outgoing
from tests import processes
from tests.transports.link import KEY, Link, bodies, come_again, drained, eventually, fill, held, ids, said
from tests.transports.quickly import check_quick

CHILD = """
import sys, time
from hipq.transports import address, source
class Anything:
    def take(self, part): return ""
    def keep(self, part, position): return True
    def read(self): return {}
    def leave(self, part): pass
one = source(address(sys.argv[1]), "shop", %s)
got = []
while len(got) < 4:
    got += one.receive(4, 5)
one.done(got[: int(sys.argv[2])])
print(*(message.id for message in got), flush=True)
time.sleep(60)
"""


class StreamContract:
    """What all stream transports promise."""

    kind: ClassVar[Any]
    """The transport's `Link`: it is made on the server that tests share, or on the one whose URL it is given."""
    server: ClassVar[Any]
    """A server of the test's own, which may be stopped and started."""

    @pytest.fixture
    def link(self) -> Iterator[Link]:
        with closing(self.kind()) as link:
            yield link

    @pytest.fixture
    def own(self) -> Iterator[tuple[Link, Any]]:
        with self.server() as server, closing(self.kind(server.url)) as link:
            yield link, server

    # -- what is sent is received -----------------------------------------------------------------------------------
    def test_a_message_arrives_byte_for_byte_with_its_key_and_headers(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        every = sorted([bytes(range(256)), b"", b"x" * 1_000_000, '{"a": "ü"}\r\n'.encode()])
        for body in every:
            out.send(Outgoing(body, KEY, link.headers), 10)
        found = link.in_order(drained(one, 4))
        assert bodies(found) == every
        for message in found:
            assert (message.key, message.subject) == (KEY, link.where.name)
            assert message.headers == link.received(KEY, link.headers)
            assert message.id.isprintable()
            assert len(message.id) < 300
        assert len({message.id for message in found}) == 4

    def test_a_key_that_a_header_has_too_is_the_same(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        out.send(Outgoing(b"", "order 5", {"hipq-key": "order 5"}), 10)
        (message,) = drained(one, 1)
        assert (message.key, message.headers) == ("order 5", link.received("", {"hipq-key": "order 5"}))

    def test_odd_messages_of_others_come_and_come_again_with_the_same_ids(self, link: Link) -> None:
        first = link.listening()
        odd = link.put_odd()
        link.sender().send(Outgoing(b"~fine", KEY), 10)
        found = link.in_order(held(first, len(odd) + 1))
        assert bodies(found[:-1]) == [body for body, _ in odd]
        for message, (_, headers) in zip(found, odd, strict=False):
            assert message.headers in ((headers, {}) if link.drops_odd_headers else (headers,))
        assert (found[-1].body, found[-1].key) == (b"~fine", KEY)
        assert len({message.id for message in found}) == len(found)
        first.close()
        again = come_again(link.source(), len(found))
        assert ids(link.in_order(again, True)) == ids(link.in_order(found, True))

    def test_messages_come_in_the_order_they_were_sent(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        sent = fill(out, 100)
        assert bodies(link.in_order(drained(one, 100, most=30))) == sent

    def test_a_lone_message_comes_at_once(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        out.send(Outgoing(b"warm"), 60)
        drained(one, 1)
        with ThreadPoolExecutor(1) as pool:

            def measured() -> float:
                waiting = pool.submit(lambda: (one.receive(1000, 60), time.perf_counter()))
                time.sleep(0.02)
                started = time.perf_counter()
                out.send(Outgoing(b"1"), 60)
                found, came = waiting.result()
                assert len(found) == 1
                one.done(found)
                return came - started

            check_quick(measured, *link.quick)

    def test_many_come_in_big_batches_sent_by_twenty_threads(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        count, batch = link.many
        out.send(Outgoing(b"warm"), 30)
        drained(one, 1)
        before = threading.active_count()

        def send(thread: int) -> None:
            for number in range(count // 20):
                out.send(Outgoing(b"%02d-%d" % (thread, number), KEY), 30)

        with ThreadPoolExecutor(20) as pool:
            list(pool.map(send, range(20)))
        assert threading.active_count() <= before, "they share what one sender has"
        batches: list[list[bytes]] = []
        until = time.monotonic() + 30
        while sum(map(len, batches)) < count and time.monotonic() < until:
            some = one.receive(1000, 1)
            one.done(some)
            batches.append(bodies(some))
        found = [body for some in batches for body in some]
        expected = [b"%02d-%d" % (thread, number) for thread in range(20) for number in range(count // 20)]
        assert sorted(found) == sorted(expected)
        if link.ordered:
            assert sorted(found, key=lambda body: body[:2]) == expected, "what one thread sends stays in order"
        assert batch <= max(map(len, batches)) <= 1000

    # -- acknowledging ----------------------------------------------------------------------------------------------
    def test_what_was_not_acknowledged_comes_to_another_source_after_close_with_the_same_id(self, link: Link) -> None:
        first, out = link.listening(), link.sender()
        fill(out, 6)
        got = held(first, 6)
        first.done([got[number] for number in link.acknowledged])
        first.close()
        rest = [message for number, message in enumerate(got) if number not in link.acknowledged]
        second = link.source()
        started = time.monotonic()
        again = come_again(second, len(rest))
        assert time.monotonic() - started < 20
        assert ids(link.in_order(again, True)) == ids(link.in_order(rest, True))
        assert list(second.receive(10, 0.3)) == []

    # -- servers that end, and those that are not there -------------------------------------------------------------
    def test_after_a_restart_nothing_confirmed_is_lost_and_nothing_unconfirmed_is_sent_later(
        self, own: tuple[Link, Any]
    ) -> None:
        link, server = own
        one, out = link.listening(), link.sender()
        sent = fill(out, 5)
        kept = drained(one, 2, most=2, done=False)  # three, if the first of two batches has one
        assert len(kept) >= 2
        one.done(kept)
        server.stop()
        for call in (lambda: drained(one, 20), *link.calls_that_break(one, kept)):  # what it has already may come first
            with pytest.raises(TransportUnavailable, match=link.broke):
                call()
        with suppress(TransportUnavailable):
            one.close()
        with pytest.raises(TransportUnavailable):  # a sender may notice only now that its connection broke
            out.send(Outgoing(b"never"), 2)
        started = time.monotonic()
        with pytest.raises(TransportUnavailable, match=link.gone):
            out.send(Outgoing(b"never"), 2)
        assert time.monotonic() - started < 15
        server.start()
        link.create()
        out.send(Outgoing(b"after"), 60)
        expected = [*(body for body in sent if link.durable and body not in bodies(kept)), b"after"]
        again, found = link.source(), list[bytes]()
        until = time.monotonic() + 60
        while not {*found} >= {*expected} and time.monotonic() < until:
            found += bodies(drained(again, 1, seconds=1))
        found += bodies(again.receive(1000, 0.3))
        if link.ordered_again:
            assert [body for body in found if body in expected] == expected
        assert {*found} >= {*expected}
        assert {*found} <= {*expected, *bodies(kept)}, "it may have lost an acknowledgement"

    def test_a_server_that_is_not_there_is_named(self, link: Link) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            server = f"127.0.0.1:{taken.getsockname()[1]}"
            where = address(link.url_at(server))
            sentence = f"{where}: nobody listens at {server} (connection refused)"
            assert said(where, link.checkpoints()) == {sentence}
        where = address(link.url_at("nowhere.invalid"))
        assert said(where, link.checkpoints()) == {f"{where}: {link.no_host}"}

    def test_nothing_is_left_behind(self, link: Link, capfd: pytest.CaptureFixture[str]) -> None:
        def left() -> tuple[int, int]:
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

        self._send_one(link)  # what a library keeps for the whole process is there now
        before = left()
        for _ in range(2):
            self._send_one(link)
        eventually(lambda: all(now <= then for now, then in zip(left(), before, strict=True)), True)
        assert capfd.readouterr() == ("", "")

    def _send_one(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        out.send(Outgoing(b"x"), 10)
        assert len(drained(one, 1)) == 1
        for each in (one, out, one, out):  # a second time does nothing
            each.close()
        link._opened.clear()


class CrashContract:
    """Of servers that remember themselves what was acknowledged."""

    def test_what_a_killed_process_held_comes_again(self, link: Link) -> None:
        link.listening(**link.crash_options).close()
        fill(link.sender(), 4)
        command = [
            sys.executable,
            "-c",
            CHILD % link.checkpoints_there,
            link.url(**link.crash_options),
            str(link.surely),
        ]
        with processes.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout
            had = child.stdout.readline().split()
            child.kill()
        one = link.source(**link.crash_options)
        again = [message.id for message in come_again(one, 4 - link.surely)]
        assert len(had) == 4
        had = had[link.surely :]
        assert again == had if link.ordered and link.ordered_again else sorted(again) == sorted(had)
        assert list(one.receive(10, 0.3)) == []


class GroupContract:
    """Of servers that know who has read what."""

    def test_another_group_sees_everything_for_itself(self, link: Link) -> None:
        groups = [link.listening("a"), link.listening("another group"), link.listening("a", group="b")]
        sent = fill(link.sender(), 3)
        for one in groups:
            assert bodies(drained(one, 3)) == sent


class HoldContract:
    """Of sources that are given messages one by one. Kafka's library reads some megabytes ahead."""

    def test_a_source_takes_no_more_than_it_may_hold(self, link: Link) -> None:
        one, out = link.source(), link.sender()
        assert list(one.receive(10, 0)) == []
        sent = fill(out, 40)
        first = held(one, 10, most=10)
        assert list(one.receive(10, 0.3)) == []
        one.done(first)
        second = held(one, 10, most=10)
        assert list(one.receive(10, 0.3)) == []
        if link.ordered:
            assert bodies(first + second) == sent[:20]

    def test_a_source_that_is_asked_for_less_than_before_hands_out_no_more(self, link: Link) -> None:
        one = link.listening()
        fill(link.sender(), 10)
        first = held(one, 4, most=4)
        assert list(one.receive(4, 0.3)) == []
        one.done(first)
        held(one, 4, most=4)


class LagContract:
    """Of servers that count."""

    def test_lag_counts_what_was_not_acknowledged(self, link: Link) -> None:
        one, out = link.listening(), link.sender()
        assert one.lag() == link.first_lag
        fill(out, 5)
        some = drained(one, 3, most=3, done=False)  # more, if the first of two batches has fewer than three
        assert len(some) >= 3
        eventually(one.lag, 5)
        one.done(some)
        eventually(one.lag, 5 - len(some))


class SharingContract:
    """Of sources that take messages from one place, each as many as it can."""

    share: ClassVar[Mapping[str, str]] = {}
    """With these options two sources share."""

    def test_two_sources_share_and_together_see_everything(self, link: Link) -> None:
        both = [link.listening(**self.share), link.listening(**self.share)]
        sent = fill(link.sender(), 100)
        seen: list[list[bytes]] = [[], []]
        until = time.monotonic() + 30
        while sum(map(len, seen)) < 100 and time.monotonic() < until:
            for one, mine in zip(both, seen, strict=True):
                some = one.receive(10, 0.1)
                one.done(some)
                mine += bodies(some)
        assert all(len(mine) >= 20 for mine in seen)
        assert sorted(seen[0] + seen[1]) == sent
        if link.ordered:
            assert [sorted(mine) for mine in seen] == seen

    def test_who_does_not_acknowledge_leaves_the_rest_to_others(self, link: Link) -> None:
        greedy, other = link.source(**self.share), link.source(**self.share)
        assert [*greedy.receive(10, 0), *other.receive(10, 0)] == []
        fill(link.sender(), 60)
        mine = held(greedy, 10, most=10)
        assert list(greedy.receive(10, 0.3)) == []
        assert len(drained(other, 50)) == 50
        greedy.done(mine)


class HangingContract:
    """Of servers that stop talking and go on later. A test class says how, by `hang` and `go_on`."""

    unknown: ClassVar[str]
    """What is said of a message that may have been stored."""

    @pytest.fixture
    def hanging(self) -> Iterator[tuple[Link, Callable[[bool], None]]]:
        """A link, and what makes its sender's server hang, or not."""
        raise NotImplementedError

    def test_what_a_hanging_server_did_not_take_in_time_is_not_sent_when_it_goes_on(
        self, hanging: tuple[Link, Callable[[bool], None]]
    ) -> None:
        link, hang = hanging
        one, out = link.listening(), link.sender()
        out.send(Outgoing(b"1"), 5)
        hang(True)

        def send(number: int) -> str:
            with pytest.raises(TransportUnavailable) as caught:
                out.send(Outgoing(b"x" * 1_000_000, str(number)), 1)
            return str(caught.value)

        started = time.monotonic()
        with ThreadPoolExecutor(20) as pool:  # more than the system's buffers hold
            sentences = set(pool.map(send, range(20)))
        assert time.monotonic() - started < 15
        assert any(sentence.endswith(f"/{link.where.name}: {self.unknown}") for sentence in sentences)
        hang(False)
        out.send(Outgoing(b"2"), 5)
        found: list[bytes] = []
        until = time.monotonic() + 60
        while b"2" not in found and time.monotonic() < until:
            found += [message.body[:1] for message in drained(one, 1, seconds=1)]
        found += [message.body[:1] for message in drained(one, 20, seconds=1)]
        assert found.count(b"x") < 15
        assert b"2" in found
