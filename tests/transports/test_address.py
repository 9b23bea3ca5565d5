"""URLs of streams, taken apart; and what is said of those that are none."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hipq import Invalid
from hipq.transports.address import Address, address

SECRET = "pa%3Ass%2Fword"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("kafka://payments.in", Address("kafka", "", "", "", "payments.in", {})),
        ("kafka:///payments.in", Address("kafka", "", "", "", "payments.in", {})),
        ("kafka://a:9092,b/in?group=g", Address("kafka", "a:9092,b", "", "", "in", {"group": "g"})),
        ("amqp://u:pa%3Ass%2Fword@h:1/v/q", Address("amqp", "h:1", "u", "pa:ss/word", "v/q", {})),
        ("redis://:secret@h/2/s", Address("redis", "h", "", "secret", "2/s", {})),
        ("mqtt://h/a/+/b/#", Address("mqtt", "h", "", "", "a/+/b/#", {})),
        ("nats://h/a%20b?x=1&y=", Address("nats", "h", "", "", "a b", {"x": "1", "y": ""})),
        ("sqs://q?endpoint=http://127.0.0.1:5000", Address("sqs", "", "", "", "q", {"endpoint": "http://127.0.0.1:5000"})),
    ],
)  # fmt: skip
def test_a_url_is_taken_apart(url: str, found: Address) -> None:
    assert address(url) == found


def test_what_stands_alone_is_on_the_usual_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_KAFKA_URL", "kafka://shop:secret@a:9092,b:9092?security.protocol=SASL_SSL&group=g")
    found = address("kafka://in?group=mine")
    assert found[:5] == ("kafka", "a:9092,b:9092", "shop", "secret", "in")
    assert found.options == {"security.protocol": "SASL_SSL", "group": "mine"}
    assert str(found) == "kafka://shop@a:9092,b:9092/in"
    assert address("kafka://other/in").hosts == "other"
    monkeypatch.setenv("HIPQ_SQS_URL", "sqs://?region=eu-west-1")
    assert address("sqs://in") == Address("sqs", "", "", "", "in", {"region": "eu-west-1"})
    monkeypatch.setenv("HIPQ_SQS_URL", "sqs:///?region=eu-west-1")
    assert address("sqs://me:secret@/in")[2:4] == ("me", "secret")


@pytest.mark.parametrize("usual", ["nonsense", "redis://h/", "kafka://h:1/topic", "kafka://h/a?b"])
def test_a_usual_server_that_is_none_is_named_by_its_variable(usual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_KAFKA_URL", usual)
    with pytest.raises(
        Invalid, match=r"HIPQ_KAFKA_URL must be the URL of a server, like kafka://broker:9092|kafka://…"
    ):
        address("kafka://in")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "is no URL of a stream"),
        ("payments.in", "is no URL of a stream"),
        ("http://host/x", "is no URL of a stream"),
        ("KAFKA://x", "is no URL of a stream"),
        (f"me:{SECRET}@host/x", "is no URL of a stream"),
        (f"redis//me:{SECRET}@host/x", "is no URL of a stream"),
        ("kafka://", "does not say what to listen to or send to"),
        (f"kafka://u:{SECRET}@host", "names a server and nothing on it"),
        (f"kafka://u:{SECRET}@host/", "does not say what to listen to or send to"),
        (f"redis://u:{SECRET}@h/s?=x&&", "has options or names that cannot be read"),
        (f"redis://u:{SECRET}@h/%ff", "has options or names that cannot be read"),
        (f"redis://u:{SECRET}@h/a%0Ab", "contains control characters"),
        ("amqp://user:pass/word@host/name", "has a password with a / in it: write that as %2F"),
        ("nats:/h/s?token=password", "this is no URL of a stream"),
        ("redis://h/a\x00b", "without control characters"),
        ("redis://h/\ud800", "without control characters"),
        (None, "must be text"),
        (b"redis://h/x", "must be text"),
    ],
)
def test_what_is_no_url_is_refused_in_a_sentence(url: str, said: str) -> None:
    with pytest.raises(Invalid) as error:
        address(url)
    assert said in str(error.value)
    assert "word" not in str(error.value).replace("a password", "")


def test_options_that_mean_nothing_are_refused() -> None:
    found = address("kafka://h/x?group=g&fetch.min.bytes=1&grup=1")
    with pytest.raises(Invalid, match=r"kafka://h/x: there is no option 'grup'; there are group"):
        found.allow({"group"}, dotted=True)
    with pytest.raises(Invalid, match=r"there is no option 'fetch\.min\.bytes'"):
        found.allow({"group", "grup"})


@pytest.mark.parametrize("value", ["", "-1", "0", "65", "1e1", "٣", "1" * 400])
def test_a_number_must_be_one_and_within_bounds(value: str) -> None:
    with pytest.raises(Invalid, match=r"mqtt://h/x: share must be a whole number from 1 to 64, not"):
        address(f"mqtt://h/x?share={value}").number("share", 1, 1, 64)


@pytest.mark.parametrize(
    ("scheme", "module"),
    [("kafka", "confluent_kafka"), ("sqs", "boto3"), ("kinesis", "boto3"), ("nats", "nats"), ("amqp", "aiormq"),
     ("redis", "redis"), ("mqtt", "paho")],
)  # fmt: skip
def test_a_library_that_is_not_there_is_named_with_its_extra(scheme: str, module: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = sys.modules['botocore'] = None\n"
        f"from hipq import transports, Invalid\n"
        f"try: transports.check(transports.address('{scheme}://x'))\n"
        f"except Invalid as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    extra = "sqs" if scheme == "kinesis" else scheme
    assert re.fullmatch(rf"{scheme}:// needs [a-z0-9-]+: pip install 'hipq\[{extra}\]'\n", done.stdout)


def test_no_library_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys, hipq; from hipq import transports\n"
        "heavy = {'confluent_kafka', 'boto3', 'botocore', 'nats', 'aio_pika', 'aiormq', 'redis', 'paho', 'httpx2',"
        " 'opentelemetry', 'asyncio', 'uvicorn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
