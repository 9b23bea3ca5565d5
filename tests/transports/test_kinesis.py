"""Kinesis, against moto's server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from botocore.exceptions import EndpointConnectionError

from hipq import Hipq, transports
from hipq.answers.checkpoints import StoredCheckpoints
from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports import address, kinesis, kinesis_shares
from hipq.transports.base import Checkpoints, Message, Outgoing, Source
from tests import processes
from tests.brokers.aws import CREDENTIALS, REGION, FaultyAws, OwnAws, aws_endpoint, client
from tests.transports.checkpoints import MemoryCheckpoints
from tests.transports.contract import HoldContract, StreamContract
from tests.transports.link import PASSWORD, Link

SECRET = "s3cr3t/value"
FIRST, SECOND, THIRD = (f"shardId-00000000000{number}" for number in range(3))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(kinesis_shares, "LOOK_SECONDS", 0.2)


@pytest.fixture
def stream() -> Iterator[str]:
    """With one shard."""
    yield from _stream(1)


@pytest.fixture
def wide() -> Iterator[str]:
    """With four."""
    yield from _stream(4)


@pytest.fixture
def pair() -> Iterator[str]:
    """With two."""
    yield from _stream(2)


def _stream(shards: int) -> Iterator[str]:
    name, server = f"hipq-{uuid4().hex[:12]}", client("kinesis", aws_endpoint())
    server.create_stream(StreamName=name, ShardCount=shards)
    yield name
    server.delete_stream(StreamName=name)


def _address(name: str, endpoint: str = "", **options: object) -> str:
    more = "".join(f"&{option}={value}" for option, value in options.items())
    return f"kinesis://{name}?region={REGION}&endpoint={endpoint or aws_endpoint()}{more}"


def _sender(name: str, endpoint: str = "") -> closing[Any]:
    return closing(transports.open_sender(address(_address(name, endpoint))))


def _source(name: str, checkpoints: Checkpoints | None = None, endpoint: str = "", **options: object) -> closing[Any]:
    return closing(
        transports.source(address(_address(name, endpoint, **options)), "group", checkpoints or MemoryCheckpoints())
    )


def _fill(name: str, bodies: list[bytes], key: str = "") -> None:
    with _sender(name) as sender:
        for number, body in enumerate(bodies):
            sender.send(Outgoing(body, key or f"key {number}"), 10)


def _some(source: Source, count: int, seconds: float = 30) -> list[Message]:
    """So many messages, acknowledged."""
    found: list[Message] = []
    until = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        some = source.receive(1000, 0.3)
        source.done(some)
        found += some
    return found


class KinesisLink(Link):
    """A stream with one shard."""

    headers: ClassVar = {"hipq-key": "key ü 1", "hipq-job": "7", "Traceparent": "0"}
    durable = False
    quick = (0.5, 1, 3)
    many = (60, 12)
    broke = gone = Link.gone
    no_host = "there is no host nowhere.invalid (unknown name); look at region and endpoint"

    def __init__(self, endpoint: str = "") -> None:
        super().__init__()
        self.endpoint = endpoint or aws_endpoint()
        self.name = f"hipq-{uuid4().hex[:12]}"
        self.notes_of_all = MemoryCheckpoints()
        self.create()

    def create(self) -> None:
        client("kinesis", self.endpoint).create_stream(StreamName=self.name, ShardCount=1)
        self.notes_of_all.notes.clear()

    def url(self, **options: str) -> str:
        return _address(self.name, self.endpoint, **options)

    def url_at(self, server: str) -> str:
        return _address("s", f"http://{server}").replace("kinesis://", f"kinesis://KEY:{PASSWORD}@/")

    def checkpoints(self) -> MemoryCheckpoints:
        return self.notes_of_all.others()

    def received(self, key: str, headers: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        """Kinesis has no headers; those of hipq are left out."""
        return {}

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        for key in ("\u00ad", "k" * 256):
            client("kinesis", self.endpoint).put_record(StreamName=self.name, Data=b"\xff\x00", PartitionKey=key)
        return [(b"\xff\x00", {})] * 2

    def close(self) -> None:
        super().close()
        with suppress(EndpointConnectionError):  # a server of the test's own has gone already
            client("kinesis", self.endpoint).delete_stream(StreamName=self.name)


class TestContract(StreamContract, HoldContract):
    kind, server = KinesisLink, OwnAws


# -- messages -------------------------------------------------------------------------------------------------------


def test_messages_without_a_key_go_anywhere(wide: str) -> None:
    with _sender(wide) as sender, _source(wide) as source:
        for _ in range(20):
            sender.send(Outgoing(b"x"), 10)
        assert len({message.id.partition(":")[0] for message in _some(source, 20)}) > 1


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (Outgoing(b"x", headers={"region": "eu"}), "Kinesis has no headers; put what 'region' says into the body"),
        (
            Outgoing(b"x", headers={"Hipq-Error": "1"}),
            "Kinesis has no headers; put what 'Hipq-Error' says into the body",
        ),
        (Outgoing(b"x", "k" * 257), "Kinesis takes keys of 256 characters, and this one has 257"),
    ],
)
def test_what_kinesis_cannot_carry_is_refused(message: Outgoing, says: str) -> None:
    with _sender("s") as sender:
        _fails(lambda: sender.send(message, 5), Invalid, says)


# -- acknowledging --------------------------------------------------------------------------------------------------
def test_what_was_not_acknowledged_comes_again_and_the_rest_does_not(stream: str) -> None:
    _fill(stream, [b"1", b"2", b"3"])
    checkpoints = MemoryCheckpoints()
    with _source(stream, checkpoints) as first:
        first.done(first.receive(1, 5))
        before = [(message.id, message.body) for message in first.receive(10, 5)]
        assert first.receive(10, 0.5) == []  # renews its claim, meanwhile
    with _source(stream, checkpoints.others()) as second:
        assert [(message.id, message.body) for message in _some(second, 2)] == before
        assert [body for _, body in before] == [b"2", b"3"]
        assert second.receive(10, 0.6) == []


CHILD = """
import sys, time
from hipq.answers import checkpoints as claims
from hipq.answers.checkpoints import StoredCheckpoints
from hipq.stores.open import open_store
from hipq.transports import address, kinesis, kinesis_shares
from hipq import transports

kinesis_shares.LOOK_SECONDS = 0.2
claims.SECONDS = float(sys.argv[4])
checkpoints = StoredCheckpoints(open_store(sys.argv[1]), "stream")
source = transports.source(address(sys.argv[2]), "group", checkpoints)
while True:
    messages = source.receive(4, 5)
    source.done(messages)
    if messages:
        print(*(message.id for message in messages), flush=True)
    if sys.argv[3] == "holds":
        held = source.receive(4, 5)
        time.sleep(60)
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Hipq]:
    """With a database where sources of several processes note what they read."""
    made = Hipq("bank", f"sqlite:///{tmp_path}/bank.db")
    made.migrate()
    yield made
    made.close()


@contextmanager
def _child(app: Hipq, name: str, then: str, claims: float = 10.0) -> Iterator[Any]:
    """Another process that reads this stream: acknowledges four and `holds` the next, or `goes on`."""
    command = [sys.executable, "-c", CHILD, app.url, _address(name), then, str(claims)]
    with processes.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_what_a_killed_process_had_comes_again_at_once_to_the_next(app: Hipq, pair: str) -> None:
    _fill(pair, [b"%d" % number for number in range(20)])
    with _child(app, pair, "holds", claims=60.0) as child:
        done = child.stdout.readline().split()
        time.sleep(0.5)  # it holds more by now, and both shards
        child.kill()
        child.wait()
    began = time.monotonic()
    with _source(pair, StoredCheckpoints(app.store, "stream")) as source:
        got = _some(source, 16)
        assert source.receive(10, 0.3) == []
    assert time.monotonic() - began < 40, "it waited for the claims to end"
    assert len(done) == 4
    assert len({message.id for message in got} | set(done)) == len(got) + len(done) == 20


def test_those_that_stay_take_over_what_a_killed_process_had(
    app: Hipq, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinesis_shares, "GONE_SECONDS", 1.0)
    with _source(pair, StoredCheckpoints(app.store, "stream")) as stays, _child(app, pair, "goes on") as child:
        until = time.monotonic() + 60
        while not select([child.stdout], [], [], 0)[0]:  # until it was given a shard, and something came on it
            assert time.monotonic() < until
            _fill(pair, [b"early"] * 12)
            stays.done(stays.receive(100, 0.2))
        child.kill()
        child.wait()
        _fill(pair, [b"%d" % number for number in range(12)])
        wanted, got, until = {b"%d" % number for number in range(12)}, set[bytes](), time.monotonic() + 60
        while not got >= wanted and time.monotonic() < until:
            got |= {message.body for message in _some(stays, 1, 1)}
    assert got >= wanted


def test_a_shard_that_somebody_else_took_meanwhile_is_left_to_them(stream: str) -> None:
    _fill(stream, [b"1", b"2"])
    checkpoints = MemoryCheckpoints()
    with _source(stream, checkpoints) as source:
        source.done(source.receive(1, 5))
        late = source.receive(1, 5)
        other = checkpoints.others()
        checkpoints.notes[FIRST] = (checkpoints.notes[FIRST][0], other)
        source.done(late)
        assert other.read()[FIRST] == "1"
        _fill(stream, [b"3"])
        assert source.receive(10, 0.6) == []
    assert other.mine() == [FIRST]


def test_lag_is_known_only_when_there_is_none(stream: str) -> None:
    with _source(stream) as source:
        assert source.lag() is None
        assert source.receive(10, 0) == []
        assert source.lag() == 0
        _fill(stream, [b"1"])
        got = source.receive(10, 5)
        assert source.lag() is None
        source.done(got)
        assert source.lag() == 0


def test_what_was_there_before_is_left_out_if_so_wished(pair: str) -> None:
    _fill(pair, [b"old"] * 12)
    time.sleep(1.1)  # Kinesis's clock, as we are told of it, has whole seconds
    checkpoints = MemoryCheckpoints()
    with _source(pair, checkpoints, start="latest") as source:
        assert source.receive(10, 0.3) == []
    del checkpoints.notes[SECOND]  # as if it had come later
    _fill(pair, [b"new"] * 12)  # while nobody listens
    time.sleep(1.1)
    with _source(pair, checkpoints.others(), start="latest") as source:
        assert [message.body for message in _some(source, 12)] == [b"new"] * 12
        assert source.receive(10, 0.3) == []


# -- order, sharing, pace -------------------------------------------------------------------------------------------
def test_each_key_stays_in_order(wide: str) -> None:
    keys = [f"key {number}" for number in range(6)]
    with _sender(wide) as sender:
        for number in range(10):
            for key in keys:
                sender.send(Outgoing(b"%d" % number, key), 10)
    with _source(wide) as source:
        got: list[Message] = []
        while len(got) < 60:
            some = source.receive(7, 2)
            assert 0 < len(some) <= 7
            source.done(some)
            got += some
    for key in keys:
        assert [int(message.body) for message in got if message.key == key] == list(range(10))


def test_sources_share_the_shards_and_together_see_everything(wide: str) -> None:
    checkpoints = [MemoryCheckpoints()]
    checkpoints += [checkpoints[0].others(), checkpoints[0].others()]
    with (
        _source(wide, checkpoints[0]) as one,
        _source(wide, checkpoints[1]) as two,
        _source(wide, checkpoints[2]) as three,
    ):
        one.receive(10, 0)
        assert len(checkpoints[0].mine()) == 4
        _until(lambda: [len(each.mine()) for each in checkpoints] == [2, 1, 1], one, two, three)
        _fill(wide, [b"%d" % number for number in range(40)])
        got = [_some(one, 99, 1), _some(two, 99, 1), _some(three, 99, 1)]
    assert sorted(int(message.body) for some in got for message in some) == list(range(40))
    assert all(got)
    assert [each.mine() for each in checkpoints] == [[], [], []]


def test_what_a_source_had_that_is_gone_is_taken_over(pair: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinesis_shares, "GONE_SECONDS", 1.0)
    checkpoints = MemoryCheckpoints()
    other = checkpoints.others()
    with _source(pair, checkpoints) as stays:
        gone = transports.source(address(_address(pair)), "group", other)
        _until(lambda: len(checkpoints.mine()) == len(other.mine()) == 1, stays, gone)
        for part, (position, owner) in checkpoints.notes.items():  # its claims end; it never says goodbye
            checkpoints.notes[part] = (position, None if owner is other else owner)
        _until(lambda: len(checkpoints.mine()) == 2, stays)
        gone.close()
        assert len(checkpoints.mine()) == 2


def test_a_merged_shard_is_read_when_those_before_it_are_done(pair: str) -> None:
    _fill(pair, [b"%d" % number for number in range(10)])
    checkpoints = MemoryCheckpoints()
    with _source(pair, checkpoints) as one, _source(pair, checkpoints.others()) as other:
        got = list(one.receive(1000, 5))
        while len(got) < 10:
            got += one.receive(1000, 5)
        client("kinesis", aws_endpoint()).merge_shards(
            StreamName=pair, ShardToMerge=FIRST, AdjacentShardToMerge=SECOND
        )  # fmt: skip
        assert {message.id.partition(":")[0] for message in got} == {FIRST, SECOND}
        assert other.receive(1000, 1) == []  # nor from the new one: what comes before it is not acknowledged
        one.done(got)
        children = _some(one, 10)  # moto copies the old records into the new shard
        assert {message.id.partition(":")[0] for message in children} == {THIRD}
    assert {part: place for part, place in checkpoints.read().items() if part in (FIRST, SECOND)} == {
        FIRST: "END", SECOND: "END",
    }  # fmt: skip


def test_a_shard_ends_where_kinesis_says_so(stream: str) -> None:
    _fill(stream, [b"1"])
    checkpoints = MemoryCheckpoints()
    with FaultyAws(aws_endpoint()) as server, _source(stream, checkpoints, server.url) as source:
        record = {"Data": "eA==", "PartitionKey": "k", "SequenceNumber": "7"}
        server.answer("GetRecords", 200, {"Records": [record], "MillisBehindLatest": 0})
        got = source.receive(10, 5)
        assert [message.body for message in got] == [b"x"]
        assert source.receive(10, 0.5) == []
        assert (server.count("GetRecords"), checkpoints.read()[FIRST]) == (1, "")
        source.done(got)
        assert checkpoints.read()[FIRST] == "END"
        assert source.receive(10, 0.5) == []
        assert checkpoints.mine() == []


def test_much_comes_in_large_batches_and_not_more_than_wanted(stream: str) -> None:
    client("kinesis", aws_endpoint()).put_records(
        StreamName=stream, Records=[{"Data": b"%d" % number, "PartitionKey": "k"} for number in range(500)]
    )
    with _source(stream) as source:
        first = source.receive(20, 5)
        assert [int(message.body) for message in first] == list(range(20))
        source.done(first)
        assert [int(message.body) for message in source.receive(1000, 5)] == list(range(20, 500))


def test_a_quiet_shard_is_not_asked_too_often(stream: str) -> None:
    with FaultyAws(aws_endpoint()) as server, _source(stream, endpoint=server.url) as source:
        assert source.receive(1000, 0.5) == []
        before = server.count("GetRecords")
        assert source.receive(1000, 1) == []
        assert 1 <= server.count("GetRecords") - before <= 5


def test_nothing_is_left_behind_after_close(wide: str) -> None:
    before = set(threading.enumerate())
    checkpoints = MemoryCheckpoints()
    with _source(wide, checkpoints) as source:
        _fill(wide, [b"x"] * 8)
        _some(source, 8)
    assert set(threading.enumerate()) <= before
    assert [part for part, (_, owner) in checkpoints.notes.items() if owner] == []


def _until(true: Callable[[], bool], *sources: Source) -> None:
    """Let these listen, in turn, until it is so."""
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        for source in sources:
            source.done(source.receive(100, 0.05))


# -- a server in trouble --------------------------------------------------------------------------------------------
def test_an_old_iterator_and_a_full_shard_are_no_failure(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinesis, "FULL_PAUSE", 0.1)
    _fill(stream, [b"1", b"2", b"3"])
    with FaultyAws(aws_endpoint()) as server, _source(stream, endpoint=server.url) as source:
        source.done(source.receive(1, 5))
        server.fail("GetRecords", "ExpiredIteratorException")
        for _ in range(2):  # the client library tries twice
            server.fail("GetRecords", "ProvisionedThroughputExceededException")
        assert [message.body for message in _some(source, 2)] == [b"2", b"3"]
        kinds = [said["ShardIteratorType"] for what, said in server.asked if what == "GetShardIterator"]
        assert kinds == ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER"]


def test_what_one_shard_gave_is_returned_even_if_another_fails(pair: str) -> None:
    _fill(pair, [b"%d" % number for number in range(20)])
    with FaultyAws(aws_endpoint()) as server, _source(pair, endpoint=server.url) as source:
        server.fail("GetRecords", "AccessDeniedException")
        got = source.receive(100, 5)
        assert 0 < len(got) < 20
        source.done(got)
        assert sorted(int(message.body) for message in [*got, *_some(source, 20 - len(got))]) == list(range(20))


def test_a_place_that_kinesis_no_longer_has_is_where_it_begins_now(stream: str) -> None:
    _fill(stream, [b"1", b"2"])
    checkpoints = MemoryCheckpoints({FIRST: ("1", None)})
    with FaultyAws(aws_endpoint()) as server, _source(stream, checkpoints, server.url) as source:
        server.fail("GetShardIterator", "InvalidArgumentException")
        assert [message.body for message in _some(source, 2)] == [b"1", b"2"]


def test_a_record_that_failed_is_not_sent_again(stream: str) -> None:
    with FaultyAws(aws_endpoint()) as server, _sender(stream, server.url) as sender, _source(stream) as source:
        for status in (500, 0):
            server.answer("PutRecord", status, {})
            with pytest.raises(TransportUnavailable):
                sender.send(Outgoing(b"x"), 10)
        server.fail("PutRecord", "ProvisionedThroughputExceededException")
        with pytest.raises(TransportUnavailable, match="AWS said ProvisionedThroughputExceededException"):
            sender.send(Outgoing(b"x"), 10)
        assert server.count("PutRecord") == 3
        assert source.receive(10, 0.5) == []


def test_after_the_server_came_back_all_goes_on_and_nothing_is_sent_late() -> None:
    with OwnAws() as server, _sender("s", server.url) as sender, _source("s", endpoint=server.url) as source:
        client("kinesis", server.url).create_stream(StreamName="s", ShardCount=1)
        sender.send(Outgoing(b"1"), 10)
        assert [message.body for message in source.receive(10, 5)] == [b"1"]
        server.freeze()
        _fails(
            lambda: sender.send(Outgoing(b"2"), 1),
            TransportUnavailable, f"{server.url[7:]} did not answer in time", within=15,
        )  # fmt: skip
        server.stop()
        for fails in (lambda: sender.send(Outgoing(b"3"), 1), lambda: source.receive(1000, 1)):
            _fails(fails, TransportUnavailable, f"nobody listens at {server.url[7:]} (connection refused)", within=15)
        server.start()
        client("kinesis", server.url).create_stream(StreamName="s", ShardCount=1)
        with _source("s", endpoint=server.url) as another:
            assert another.receive(10, 0.5) == []
            sender.send(Outgoing(b"4"), 10)
            assert [message.body for message in another.receive(10, 5)] == [b"4"]


# -- errors ---------------------------------------------------------------------------------------------------------
def _fails(work: Callable[[], Any], kind: type[HipqError], says: str, within: float = 20) -> None:
    began = time.monotonic()
    with pytest.raises(HipqError) as error:
        work()
    assert (type(error.value), str(error.value)) == (kind, f"kinesis://s: {says}")
    assert time.monotonic() - began < within
    assert SECRET not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("", "there is no such stream in this account and region; create it first"),
        ("http://nowhere.invalid:1", "there is no host nowhere.invalid:1 (unknown name); look at region and endpoint"),
        ("http://127.0.0.1:1", "nobody listens at 127.0.0.1:1 (connection refused)"),
    ],
)
def test_a_sender_and_a_source_say_what_is_wrong(endpoint: str, says: str) -> None:
    url = _address("s", endpoint).replace("kinesis://", f"kinesis://KEY:{SECRET.replace('/', '%2F')}@/")
    with (
        closing(transports.open_sender(address(url))) as sender,
        closing(transports.source(address(url), "group", MemoryCheckpoints())) as source,
    ):
        _fails(lambda: sender.send(Outgoing(b"x"), 5), TransportUnavailable, says)
        _fails(lambda: source.receive(10, 1), TransportUnavailable, says)


def test_credentials_that_may_not_read(stream: str) -> None:
    with FaultyAws(aws_endpoint()) as server, _source(stream, endpoint=server.url) as source:
        server.fail("GetRecords", "AccessDeniedException")
        says = f"^kinesis://{stream}: these AWS credentials may not do that: AccessDeniedException, as ordered$"
        with pytest.raises(TransportUnavailable, match=says):
            source.receive(10, 1)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("kinesis://s?most=1", "kinesis://s: there is no option 'most'; there are endpoint, group, region, start"),
        ("kinesis://s?start=now", "kinesis://s: start must be oldest or latest, not 'now'"),
        ("kinesis://s%20s", "kinesis://s s: the name of a stream has up to 128 letters, digits, dots, - and _"),
        (
            "kinesis://123456789012/s",
            "kinesis://… takes no server, only a name, like kinesis://STREAM?region=eu-west-1; "
            "another server is endpoint=http://…, and a / in a secret is written %2F",
        ),
    ],
)  # fmt: skip
def test_a_url_that_cannot_work_is_refused(url: str, says: str) -> None:
    with pytest.raises(Invalid) as error:
        kinesis.check(address(url))
    assert str(error.value) == says
