"""SQS, against moto's server."""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from botocore.exceptions import EndpointConnectionError

from hipq import transports
from hipq.errors import HipqError, Invalid, TransportUnavailable
from hipq.transports import address, sqs
from hipq.transports.base import Message, Outgoing, Sender, Source, quoted
from tests.brokers.aws import CREDENTIALS, REGION, FaultyAws, OwnAws, aws_endpoint, client
from tests.transports.contract import CrashContract, HoldContract, LagContract, SharingContract, StreamContract
from tests.transports.link import PASSWORD, Link, drained

SECRET = "s3cr3t/value"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def queue() -> Iterator[str]:
    yield from _queue(f"hipq-{uuid4().hex[:12]}")


@pytest.fixture
def fifo() -> Iterator[str]:
    yield from _queue(f"hipq-{uuid4().hex[:12]}.fifo", FifoQueue="true")


def _queue(name: str, **attributes: str) -> Iterator[str]:
    server = client("sqs", aws_endpoint())
    url = server.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    yield name
    server.delete_queue(QueueUrl=url)


def _address(name: str, endpoint: str = "", **options: object) -> str:
    more = "".join(f"&{option}={value}" for option, value in options.items())
    return f"sqs://{name}?region={REGION}&endpoint={endpoint or aws_endpoint()}{more}"


def _sender(name: str, endpoint: str = "") -> closing[Any]:
    return closing(transports.open_sender(address(_address(name, endpoint))))


def _source(name: str, endpoint: str = "", **options: object) -> closing[Any]:
    checkpoints: Any = None
    return closing(transports.source(address(_address(name, endpoint, **options)), "group", checkpoints))


def _all(source: Source, most: int = 1000, acknowledge: bool = True) -> list[Message]:
    """All there is: until a short look finds nothing."""
    found: list[Message] = []
    while some := source.receive(most, 0):
        found += some
        if acknowledge:
            source.done(some)
    return found


def _fill(sender: Sender, count: int) -> set[bytes]:
    bodies = {b"%d" % number for number in range(count)}
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda body: sender.send(Outgoing(body), 10), bodies))
    return bodies


class SqsLink(Link):
    headers: ClassVar = {"hipq-attempt": "2", "Traceparent": "ü 00-1"}
    ordered = False
    durable = False
    quick = (0.4, 2, 7)  # one of them may be quick by chance; half a second is what others are waited for
    many = (80, 30)  # moto takes its time
    crash_options: ClassVar = {"visibility": "2"}
    broke = gone = Link.gone
    no_host = "there is no host nowhere.invalid (unknown name); look at region and endpoint"

    def __init__(self, endpoint: str = "") -> None:
        super().__init__()
        self.endpoint = endpoint or aws_endpoint()
        self.name = f"hipq-{uuid4().hex[:12]}"
        self.create()

    def create(self) -> None:
        self._queue = client("sqs", self.endpoint).create_queue(QueueName=self.name)["QueueUrl"]

    def url(self, **options: str) -> str:
        return _address(self.name, self.endpoint, **options)

    def url_at(self, server: str) -> str:
        return _address("q", f"http://{server}").replace("sqs://", f"sqs://KEY:{PASSWORD}@/")

    def received(self, key: str, headers: Mapping[str, str]) -> dict[str, str]:
        """A queue has no key: the key is a header of its own."""
        return {**super().received(key, headers), **({"hipq-key": quoted(key)} if key else {})}

    def put_odd(self) -> list[tuple[bytes, dict[str, str]]]:
        server = client("sqs", self.endpoint)
        binary = {"DataType": "Binary", "BinaryValue": b"\xff\x00"}
        number = {"DataType": "Number", "StringValue": "7"}
        wrong = {"DataType": "String", "StringValue": "base64"}
        server.send_message(QueueUrl=self._queue, MessageBody="no base64 ü", MessageAttributes={"hipq-encoding": wrong})
        server.send_message(
            QueueUrl=self._queue, MessageBody="two", MessageAttributes={"Blob": binary, "count": number}
        )
        return [("no base64 ü".encode(), {}), (b"two", {"blob": "\ufffd\x00", "count": "7"})]

    def calls_that_break(self, source: Source, messages: Sequence[Message]) -> list[Callable[[], object]]:  # noqa: ARG002
        return [lambda: source.done([Message(b"", "1", handle="x")]), source.lag]

    def close(self) -> None:
        super().close()
        with suppress(EndpointConnectionError):  # a server of the test's own has gone already
            client("sqs", self.endpoint).delete_queue(QueueUrl=self._queue)


class TestContract(StreamContract, HoldContract, CrashContract, LagContract, SharingContract):
    kind, server = SqsLink, OwnAws


# -- messages -------------------------------------------------------------------------------------------------------


def test_the_key_goes_along_when_no_header_has_it(queue: str) -> None:
    with _sender(queue) as sender, _source(queue) as source:
        sender.send(Outgoing(b"x", "order 5"), 10)
        (message,) = source.receive(10, 5)
        assert (message.key, message.headers) == ("order 5", {"hipq-key": "order 5"})


def test_any_body_comes_back_byte_for_byte(queue: str) -> None:
    odd = [b"", b"-", b"\xff\xfe\x00\x01", b"bell \x07", "\ufffe".encode(), "\U0001f600".encode(), b"x" * 1_000_000]
    with _sender(queue) as sender, _source(queue) as source:
        for body in odd:
            sender.send(Outgoing(body), 10)
            (message,) = source.receive(10, 5)
            assert (message.body, message.headers) == (body, {})
            source.done([message])


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"empty": ""}, "SQS takes no empty header and no control characters, but empty is ''"),
        ({"bell": "\x07"}, "SQS takes no empty header and no control characters, but bell is '\\x07'"),
        ({"two words": "x"}, "SQS takes no header named 'two words': letters, digits, - _ and single dots only"),
        ({"AWS.x": "x"}, "SQS takes no header named 'AWS.x': letters, digits, - _ and single dots only"),
        ({f"h{n}": "x" for n in range(11)}, "SQS takes ten headers, with those of hipq, and this message has 11"),
    ],
)
def test_headers_that_do_not_fit_are_refused(queue: str, headers: dict[str, str], says: str) -> None:
    with _sender(queue) as sender, pytest.raises(Invalid) as error:
        sender.send(Outgoing(b"x", headers=headers), 10)
    assert str(error.value) == f"sqs://{queue}: {says}"


def test_a_message_that_is_too_long_is_refused_for_good(queue: str) -> None:
    with _sender(queue) as sender, pytest.raises(Invalid, match=f"^sqs://{queue}: AWS refused it for good: .*shorter"):
        sender.send(Outgoing(b"x" * 1_100_000), 10)


# -- acknowledging --------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_does_not_come_again(queue: str) -> None:
    with _sender(queue) as sender, _source(queue, visibility=4) as source:
        _fill(sender, 25)
        got = _all(source, acknowledge=False)
        source.done(got[:24])
        assert [message.id for message in source.receive(10, 30)] == [got[24].id]


def test_a_message_that_cannot_be_deleted_is_left(queue: str) -> None:
    with _sender(queue) as sender, _source(queue, visibility=3) as source:
        _fill(sender, 2)
        one, other = _all(source, acknowledge=False)
        source.done([Message(b"", "stranger", handle="no receipt"), one])
        assert [message.id for message in source.receive(10, 30)] == [other.id]


# -- order, sharing, pace -------------------------------------------------------------------------------------------
def test_a_fifo_queue_keeps_the_order_of_each_key(fifo: str) -> None:
    sent = [(key, b"%d" % number) for number in range(12) for key in ("a", "long ü " * 40)]
    with _sender(fifo) as sender:
        for key, body in sent:
            sender.send(Outgoing(body, key), 10)
        sender.send(Outgoing(b"no key"), 10)
    with _source(fifo) as first:
        assert first.receive(1, 5)  # of two of a group that are given back, moto shows the second one first, at times
    with _source(fifo) as second:
        got = [(message.key, message.body) for message in _all(second)]
    for key in ("a", "long ü " * 40, ""):
        assert [body for one, body in got if one == key] == [
            body for one, body in [*sent, ("", b"no key")] if one == key
        ]


@pytest.mark.parametrize("key", ["", "order-5", "two words", "ü", "k" * 129])
def test_the_group_of_a_message_is_one_that_sqs_takes(key: str) -> None:
    """moto takes any."""
    group = sqs.outgoing(address("sqs://q.fifo"), Outgoing(b"x", key))["MessageGroupId"]
    assert re.fullmatch("[!-~]{1,128}", group)
    assert (group == key) == (key == "order-5")


def test_a_fifo_queue_drops_the_same_attempt_and_takes_the_next(fifo: str) -> None:
    with _sender(fifo) as sender, _source(fifo) as source:
        for attempt in ("1", "1", "2"):
            sender.send(Outgoing(b"x", "key", {"hipq-attempt": attempt}), 10)
        assert [message.headers["hipq-attempt"] for message in _all(source)] == ["1", "2"]


def test_twenty_threads_send_through_one_sender(queue: str, caplog: pytest.LogCaptureFixture) -> None:
    with _sender(queue) as sender, _source(queue) as source:
        with ThreadPoolExecutor(20) as threads:
            list(threads.map(lambda number: sender.send(Outgoing(b"%d" % number), 10), range(60)))
        assert sorted(int(message.body) for message in _all(source)) == list(range(60))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -- a server in trouble --------------------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs, "LONGEST_POLL", 1)
    monkeypatch.setattr(sqs, "READ_SLACK", 0)
    with (
        OwnAws() as server,
        _sender("q", server.url) as sender,
        _source("q", server.url, visibility=1, pollers=1) as source,
    ):
        client("sqs", server.url).create_queue(QueueName="q")
        for _ in range(30):
            sender.send(Outgoing(b"1"), 10)
        held = drained(source, 30, done=False)
        assert len(held) >= 30
        server.freeze()
        says = f"{server.url[7:]} did not answer in time"
        _fails(lambda: source.done(held), TransportUnavailable, says, within=4)  # though it has three requests to make
        _fails(lambda: source.receive(1000, 1), TransportUnavailable, says, within=4)
        _fails(lambda: sender.send(Outgoing(b"2"), 1), TransportUnavailable, says, within=15)
        began = time.monotonic()
        source.close()
        assert time.monotonic() - began < 20
        server.thaw()
        time.sleep(1.3)  # it may have given some to the one that went, which are hidden for a second
        with _source("q", server.url) as another:
            bodies = [message.body for message in _all(another)]
        assert bodies.count(b"1") in (20, 30)  # the first request of `done`, as well as
        assert bodies.count(b"2") <= 1  # this one, was on its way when the server froze


def test_a_request_that_failed_is_not_sent_again(queue: str) -> None:
    with FaultyAws(aws_endpoint()) as server, _sender(queue, server.url) as sender, _source(queue) as source:
        for status, says in ((503, "AWS said 503"), (0, f"{server.url[7:]} closed the connection without an answer")):
            server.answer("SendMessage", status, {})
            _fails(lambda: sender.send(Outgoing(b"x"), 10), TransportUnavailable, says, name=queue)
        server.fail("SendMessage", "RequestThrottled")
        says = "AWS said RequestThrottled: RequestThrottled, as ordered"
        _fails(lambda: sender.send(Outgoing(b"x"), 10), TransportUnavailable, says, name=queue)
        assert server.count("SendMessage") == 3
        assert source.lag() == 0


def test_reading_and_deleting_are_tried_again(queue: str) -> None:
    with FaultyAws(aws_endpoint()) as server, _sender(queue) as sender, _source(queue, server.url) as source:
        _fill(sender, 3)
        server.answer("ReceiveMessage", 503, {})
        got = _all(source, acknowledge=False)
        assert len(got) == 3
        server.answer("DeleteMessageBatch", 503, {})
        failed = {"Id": "1", "SenderFault": False, "Code": "InternalError", "Message": "busy"}
        refused = {"Id": "2", "SenderFault": True, "Code": "ReceiptHandleIsInvalid", "Message": "too old"}
        server.answer("DeleteMessageBatch", 200, {"Successful": [{"Id": "0"}], "Failed": [failed, refused]})
        source.done(got)
        deletes = [said["Entries"] for what, said in server.asked if what == "DeleteMessageBatch"]
        assert [len(entries) for entries in deletes] == [3, 3, 1]
        assert deletes[2][0]["ReceiptHandle"] == got[1].handle


def test_what_is_in_hand_is_returned_even_if_the_next_look_fails(queue: str) -> None:
    with FaultyAws(aws_endpoint()) as server, _sender(queue) as sender:
        _fill(sender, 15)
        with _source(queue, server.url, pollers=1) as source:
            source.lag()
            messages = [{"MessageId": f"{n}", "ReceiptHandle": f"{n}", "Body": "x"} for n in range(10)]
            server.answer("ReceiveMessage", 200, {"Messages": messages})
            server.fail("ReceiveMessage", "AccessDenied")
            assert [message.id for message in source.receive(100, 1)] == [f"{n}" for n in range(10)]


# -- errors ---------------------------------------------------------------------------------------------------------
def _fails(work: Callable[[], Any], kind: type[HipqError], says: str, within: float = 20, name: str = "q") -> None:
    began = time.monotonic()
    with pytest.raises(HipqError) as error:
        work()
    assert (type(error.value), str(error.value)) == (kind, f"sqs://{name}: {says}")
    assert time.monotonic() - began < within
    shown = "".join(traceback.format_exception(error.value))
    assert SECRET not in shown
    assert "botocore" not in shown.replace("/botocore/", "")


def _both(url: str, kind: type[HipqError], says: str, name: str = "q") -> None:
    """A sender and a source say the same."""
    checkpoints: Any = None
    with (
        closing(transports.open_sender(address(url))) as sender,
        closing(transports.source(address(url), "group", checkpoints)) as source,
    ):
        _fails(lambda: sender.send(Outgoing(b"x"), 5), kind, says, name=name)
        _fails(lambda: source.receive(10, 1), kind, says, name=name)
        assert SECRET not in repr((sender, source))


def test_a_queue_that_is_not_there() -> None:
    says = "there is no such queue in this account and region; create it first"
    _both(_address("q"), TransportUnavailable, says)
    _both(_address("210987654321/q"), TransportUnavailable, says, name="210987654321/q")


def test_the_queue_of_an_account(queue: str) -> None:
    with _sender(f"123456789012/{queue}") as sender, _source(queue) as source:  # the one moto runs everybody as
        sender.send(Outgoing(b"x"), 10)
        assert [message.body for message in source.receive(10, 5)] == [b"x"]


def test_a_queue_that_was_deleted_is_missed(queue: str) -> None:
    server = client("sqs", aws_endpoint())
    url = server.create_queue(QueueName=f"{queue}-2")["QueueUrl"]
    with _sender(f"{queue}-2") as sender, _source(f"{queue}-2") as source:
        sender.send(Outgoing(b"x"), 10)
        source.receive(10, 5)
        server.delete_queue(QueueUrl=url)
        says = "there is no such queue in this account and region; create it first"
        _fails(lambda: sender.send(Outgoing(b"x"), 5), TransportUnavailable, says, name=f"{queue}-2")
        _fails(lambda: source.receive(10, 1), TransportUnavailable, says, name=f"{queue}-2")


def test_credentials_that_nobody_knows() -> None:
    with OwnAws(strict=True) as server:
        url = _address("q", server.url).replace("sqs://", f"sqs://KEY:{SECRET.replace('/', '%2F')}@/")
        _both(url, TransportUnavailable, "AWS does not accept these credentials (403)")


def test_credentials_that_may_not_do_it(queue: str) -> None:
    with FaultyAws(aws_endpoint()) as server:
        for _ in range(2):
            server.fail("GetQueueUrl", "AccessDenied", 403)
        says = "these AWS credentials may not do that: AccessDenied, as ordered"
        _both(_address(queue, server.url), TransportUnavailable, says, name=queue)


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    says = (
        "found no AWS credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"
    )  # fmt: skip
    _both(_address("q"), TransportUnavailable, says)


def test_no_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    _both("sqs://q", Invalid, "in which region? Add ?region=eu-west-1 or set AWS_DEFAULT_REGION")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (
            "sqs://q?sped=1",
            "sqs://q: there is no option 'sped'; there are endpoint, group, pollers, region, visibility",
        ),
        ("sqs://q?visibility=0", "sqs://q: visibility must be a whole number from 1 to 43200, not '0'"),
        ("sqs://q?pollers=many", "sqs://q: pollers must be a whole number from 1 to 64, not 'many'"),
        ("sqs://q?region=Ireland!", "sqs://q: region must be the name of one, like eu-west-1, not 'Ireland!'"),
        (
            f"sqs://q?endpoint=http://me:{SECRET}@host",
            "sqs://q: endpoint must be the URL of a server, like http://127.0.0.1:5000",
        ),
        ("sqs://KEY@/q", "sqs://q: needs both an access key and its secret, or neither"),
        (
            "sqs://q%20q",
            "sqs://q q: the name of a queue has up to 80 letters, digits, - and _, and may end with .fifo",
        ),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, says: str) -> None:
    with pytest.raises(Invalid) as error:
        sqs.check(address(url))
    assert str(error.value) == says


@pytest.mark.parametrize("url", ["sqs://server:5000/q", "sqs://12345/q"])
def test_a_server_in_the_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(Invalid) as error:
        sqs.check(address(url))
    assert str(error.value) == (
        "sqs://… takes no server, only a name, like sqs://QUEUE?region=eu-west-1; "
        "another server is endpoint=http://…, and a / in a secret is written %2F"
    )
