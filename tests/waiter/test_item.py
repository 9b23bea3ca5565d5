"""Messages as DynamoDB keeps them, and what SQS takes: no network."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipq.errors import Invalid
from hipq.waiter import limits
from hipq.waiter.item import Scheduled, from_item, number, readable, to_item

_TEXT = st.text(
    st.one_of(
        st.characters(min_codepoint=0x20, max_codepoint=0xD7FF),
        st.characters(min_codepoint=0xE000, max_codepoint=0xFFFD),
        st.characters(min_codepoint=0x10000),
        st.sampled_from("\t\n\r"),
    ),
    min_size=1,
)
_NAME = st.from_regex(r"\A[A-Za-z0-9_-]{1,20}(\.[A-Za-z0-9_-]{1,10})?\Z").filter(
    lambda name: not name.lower().startswith(("aws.", "amazon."))
)
_VALUE = st.one_of(
    st.builds(lambda text: {"DataType": "String", "StringValue": text}, _TEXT),
    st.builds(lambda text: {"DataType": "String.mine", "StringValue": text}, _TEXT),
    st.builds(lambda n: {"DataType": "Number", "StringValue": str(n)}, st.integers()),
    st.builds(lambda content: {"DataType": "Binary.png", "BinaryValue": content}, st.binary(min_size=1)),
)
_ID = st.from_regex(r"\A[!-~]{1,128}\Z")


@given(
    body=_TEXT,
    attributes=st.dictionaries(_NAME, _VALUE, max_size=10),
    group=st.one_of(st.just(""), _ID),
    dedup=st.one_of(st.just(""), _ID),
    due=st.integers(0, 253_402_300_799_000_000),
)
def test_what_is_kept_comes_back_as_it_was(
    body: str, attributes: dict[str, dict[str, Any]], group: str, dedup: str, due: int
) -> None:
    assert limits.text(body, "body") == body
    assert limits.attributes(attributes) == attributes
    message = Scheduled("mailers", "17", number(due), body, attributes, group, dedup)
    item = to_item(message, "shoryuken-waiter", due)
    assert from_item(item, "table") == message
    assert message.due == due
    assert limits.item_size(item) >= limits.message_size(body, attributes)


def test_what_shoryuken_waiter_has_put_there_is_understood() -> None:
    """As the gem's adapter writes it: the job as a map, the time as a float."""
    job = {
        "job_class": {"S": "MailJob"},
        "job_id": {"S": "8c6d"},
        "queue_name": {"S": "mailers"},
        "priority": {"NULL": True},
        "arguments": {"L": [{"N": "17"}, {"N": "2.5"}, {"S": "é"}, {"BOOL": True}, {"M": {"to": {"S": "you"}}}]},
        "locale": {"S": "en"},
    }
    wrapper = "ActiveJob::QueueAdapters::ShoryukenAdapter::JobWrapper"
    message = from_item(
        {
            "scheduler": {"S": "shoryuken-waiter"},
            "job_id": {"S": "8c6d"},
            "perform_at": {"N": "1476306000.1234567"},
            "sqs_message_body": {"M": job},
            "sqs_message_attributes": {
                "M": {"shoryuken_class": {"M": {"string_value": {"S": wrapper}, "data_type": {"S": "String"}}}}
            },
        },
        "another-table",
    )
    assert json.loads(message.body) == {
        "job_class": "MailJob",
        "job_id": "8c6d",
        "queue_name": "mailers",
        "priority": None,
        "arguments": [17, 2.5, "é", True, {"to": "you"}],
        "locale": "en",
    }
    assert message.queue == "mailers"
    assert message.attributes == {"shoryuken_class": {"DataType": "String", "StringValue": wrapper}}
    assert message.due == 1_476_306_000_123_457  # rounded up: never early
    assert message.perform_at == "1476306000.1234567"  # as it is: writes name it


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({}, "sqs_message_body"),
        ({"sqs_message_body": {"N": "1"}}, "sqs_message_body"),
        ({"sqs_message_body": {"S": ""}}, "sqs_message_body"),
        ({"sqs_message_body": {"M": {"x": {"B": b"1"}}}}, "type B"),
        ({"sqs_message_body": {"S": "x"}, "queue_name": {"N": "1"}}, "queue_name"),
        ({"sqs_message_body": {"S": "x"}, "sqs_message_attributes": {"M": {"a": {"S": "b"}}}}, "attribute a"),
        ({"sqs_message_body": {"S": "x"}, "sqs_message_attributes": {"M": {"a": {"M": {}}}}}, "attribute a"),
    ],
)
def test_an_item_that_cannot_be_read_says_why(item: dict[str, Any], why: str) -> None:
    message = from_item({"job_id": {"S": "1"}, "perform_at": {"N": "1"}, **item}, "mailers")
    assert not readable(message)
    assert why in message.error


@pytest.mark.parametrize("digits", ["1E+125", "-5", "0", "99999999999999999999999999999999999999"])
def test_any_number_can_be_a_time(digits: str) -> None:
    item = {"job_id": {"S": "1"}, "perform_at": {"N": digits}, "sqs_message_body": {"S": "x"}}
    assert from_item(item, "mailers").at.year in (1970, 9999)


@pytest.mark.parametrize("body", ["", b"bytes", None, 5, "a\x00b", "\ud800", "\ufffe", "\x0b", "\x1f"])
def test_bodies_that_sqs_does_not_take(body: Any) -> None:
    with pytest.raises(Invalid):
        limits.text(body, "the body")


@pytest.mark.parametrize(
    "attributes",
    [
        [],
        {"a": "text"},
        {"a": {}},
        {"a": {"DataType": "String"}},
        {"a": {"DataType": "String", "StringValue": ""}},
        {"a": {"DataType": "String", "StringValue": "\x00"}},
        {"a": {"DataType": "String", "StringValue": 5}},
        {"a": {"DataType": "String", "BinaryValue": b"1"}},
        {"a": {"DataType": "String", "StringValue": "1", "BinaryValue": b"1"}},
        {"a": {"DataType": "Text", "StringValue": "1"}},
        {"a": {"DataType": "Number", "StringValue": "many"}},
        {"a": {"DataType": "Number", "StringValue": "NaN"}},
        {"a": {"DataType": "Binary", "BinaryValue": b""}},
        {"a": {"DataType": "Binary", "BinaryValue": "text"}},
        {"": {"DataType": "String", "StringValue": "1"}},
        {".a": {"DataType": "String", "StringValue": "1"}},
        {"a..b": {"DataType": "String", "StringValue": "1"}},
        {"AWS.trace": {"DataType": "String", "StringValue": "1"}},
        {"amazon.x": {"DataType": "String", "StringValue": "1"}},
        {"ä": {"DataType": "String", "StringValue": "1"}},
        {"a" * 257: {"DataType": "String", "StringValue": "1"}},
        {5: {"DataType": "String", "StringValue": "1"}},
        {f"a{n}": {"DataType": "String", "StringValue": "1"} for n in range(11)},
    ],
)
def test_attributes_that_sqs_does_not_take(attributes: Any) -> None:
    with pytest.raises(Invalid):
        limits.attributes(attributes)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 81, "a.fifo.x", "x" * 76 + ".fifo", None, "https://sqs/q"])
def test_names_that_no_queue_has(name: Any) -> None:
    with pytest.raises(Invalid):
        limits.queue_name(name)


@pytest.mark.parametrize("failures", [{"N": "1.5"}, {"N": "1e100"}, {"N": "-1"}, {"S": "x"}, {}])
def test_an_item_of_somebody_elses_making_is_read_as_far_as_it_can_be(failures: dict[str, str]) -> None:
    """Else one such item would stop the poller for all."""
    item = to_item(Scheduled("q", "id", "1", "body"), "s", 0) | {"failures": failures, "claimed_until": failures}
    found = from_item(item, "q")
    assert (found.body, found.failures >= 0) == ("body", True)
