"""CloudEvents in messages: what the SDK of the CloudEvents project writes is read, and what is no event is refused."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from cloudevents.core.bindings import amqp, http, kafka, rabbitmq
from cloudevents.core.v1.event import CloudEvent

from hipq import Invalid
from hipq.transports.cloud_events import event_in

ABOUT = {"specversion": "1.0", "id": "e-1", "source": "/bank", "type": "com.bank.paid"}
ODD = {"id": '50% "off"', "source": "https://bank.example/a%20b?c=ü", "subject": "order 17 € 😀", "hop": "a\\b"}


def made(data: Any, **attributes: Any) -> CloudEvent:
    return CloudEvent({"type": "com.bank.paid", "source": "/bank", "id": "e-1", **attributes}, data)


def lower(headers: Mapping[str, Any]) -> dict[str, str]:
    """Headers as transports hand them on."""
    return {name.lower(): value.decode() if isinstance(value, bytes) else str(value) for name, value in headers.items()}


def sent(event: CloudEvent, way: str) -> tuple[dict[str, str], bytes, bool]:
    """The headers and the body with which the SDK sends an event, and whether headers of that system are quoted."""
    system, _, mode = way.partition(" ")
    if system == "kafka":
        record = getattr(kafka, f"to_{mode}_event")(event)
        return lower(record.headers), record.value, False
    if system == "amqp":
        found = getattr(amqp, f"to_{mode}_event")(event)
        return lower({**found.properties, **found.application_properties}), found.application_data, False
    if system == "rabbitmq":
        put = getattr(rabbitmq, f"to_{mode}_event")(event)
        return lower({**put.headers, "content-type": put.content_type or ""}), put.body, False
    posted = getattr(http, f"to_{mode}_event")(event)
    return lower(posted.headers), posted.body, True


WAYS = [f"{system} {mode}" for system in ("http", "kafka", "amqp", "rabbitmq") for mode in ("binary", "structured")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data", [{"status": "paid", "n": [1, 2.5, None, "ü"]}, {}])
def test_an_event_is_the_same_whichever_way_it_was_sent(way: str, data: Any) -> None:
    headers, body, is_quoted = sent(made(data, datacontenttype="application/json", **ODD), way)
    found = event_in(headers, body, is_quoted=is_quoted)
    assert found is not None
    assert {name: found[name] for name in ODD} == ODD
    assert (found["specversion"], found["type"], found["data"]) == ("1.0", "com.bank.paid", data)
    assert found["datacontenttype"] == "application/json"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("data", "kind", "read"),
    [
        ("<paid/>", "application/xml", "<paid/>"),
        ("paid, ü", "text/plain; charset=utf-8", "paid, ü"),
        (b"\xff\x00", "application/octet-stream", b64encode(b"\xff\x00").decode()),
        (b"abc", "application/octet-stream", "YWJj"),
        ({"a": 1}, "application/vnd.bank+json", {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        (None, None, None),
    ],
)
def test_data_is_read_by_its_content_type(way: str, data: Any, kind: str | None, read: Any) -> None:
    headers, body, is_quoted = sent(made(data, **({"datacontenttype": kind} if kind else {})), way)
    found = event_in(headers, body, is_quoted=is_quoted)
    assert found is not None
    assert found["data"] == read


def test_headers_without_a_prefix_are_an_event_if_all_that_is_required_is_there() -> None:
    found = event_in({**ABOUT, "subject": "17", "content-type": "application/json"}, b"[1]", is_quoted=False)
    assert found == {**ABOUT, "subject": "17", "datacontenttype": "application/json", "data": [1]}
    for missing in ABOUT:
        rest = {name: value for name, value in ABOUT.items() if name != missing}
        assert event_in(rest, b"[1]", is_quoted=False) is None


def test_both_forms_of_amqp_are_known_and_quotes_as_they_used_to_be() -> None:
    for prefix in ("cloudEvents:", "cloudEvents_", "ce_", "CE-"):
        headers = {f"{prefix}{name}".lower(): f'"{value}"' for name, value in ABOUT.items()}
        assert event_in(headers, b"1", is_quoted=True) == {**ABOUT, "data": 1}
    quoted = {**{f"ce-{name}": value for name, value in ABOUT.items()}, "ce-subject": '"a \\"b\\" %C3%BC"'}
    assert (event_in(quoted, b"1", is_quoted=True) or {})["subject"] == 'a "b" ü'


def test_a_structured_event_is_known_by_its_body_where_no_header_says_so() -> None:
    assert event_in({}, json.dumps({**ABOUT, "data": 5}).encode(), is_quoted=False) == {**ABOUT, "data": 5}
    plain = (
        b'{"specversion": "1.0", "id": "e-1"}',
        b'["specversion"]',
        b'"specversion"',
        b'{"specversion"',
        b"{}",
        b"",
    )
    assert [event_in({}, body, is_quoted=False) for body in plain] == [None] * len(plain)


def test_null_is_the_same_as_nothing() -> None:
    body = json.dumps({**ABOUT, "subject": None, "data": None, "data_base64": "e30="}).encode()
    assert event_in({}, body, is_quoted=False) == {**ABOUT, "data": "{}"}, "without a type base64 is no JSON"


STRUCTURED = {"content-type": "Application/CloudEvents+JSON; charset=UTF-8"}
CE = {f"ce-{name}": value for name, value in ABOUT.items()}


@pytest.mark.parametrize(
    ("headers", "body", "sentence"),
    [
        (STRUCTURED, b"{", "the CloudEvent is not JSON: "),
        (STRUCTURED, b"\xff", "the CloudEvent is not UTF-8 text"),
        (STRUCTURED, b"[]", "the CloudEvent must be a JSON object, not []"),
        (STRUCTURED, {**ABOUT, "id": ""}, "the CloudEvent has no id"),
        (STRUCTURED, {**ABOUT, "source": 5}, "the CloudEvent has no source"),
        (STRUCTURED, {**ABOUT, "specversion": "0.3"}, "is of version '0.3', and 1.0 is the one that is understood"),
        ({}, {**ABOUT, "specversion": "2.0"}, "is of version '2.0', and 1.0 is the one that is understood"),
        (STRUCTURED, {**ABOUT, "subject": 5}, "the CloudEvent has a subject that is not text"),
        (STRUCTURED, {**ABOUT, "data": 1, "data_base64": "MQ=="}, "has both data and data_base64"),
        (STRUCTURED, {**ABOUT, "data_base64": "?"}, "has data_base64 that is not base64"),
        (STRUCTURED, {**ABOUT, "data_base64": 7}, "has data_base64 that is not base64"),
        (
            STRUCTURED, {**ABOUT, "datacontenttype": "a/json", "data_base64": "/w=="},
            "the CloudEvent's data is not UTF-8 text",
        ),
        (
            {"content-type": "application/cloudevents-batch+json"}, [ABOUT],
            "'application/cloudevents-batch+json' is not understood: send CloudEvents one by one, as "
            "application/cloudevents+json",
        ),
        ({"content-type": "application/cloudevents+avro"}, b"", "'application/cloudevents+avro' is not understood"),
        ({**CE, "ce-source": ""}, b"", "the CloudEvent has no source"),
        ({"ce-specversion": "1.0", "ce-id": "1"}, b"", "the CloudEvent has no source"),
        ({**CE, "ce-subject": "%C0%A0"}, b"", "the CloudEvent has an attribute subject that is not UTF-8 text"),
        ({**CE, "content-type": "application/json"}, b"{", "the CloudEvent's data is not JSON: "),
        ({**CE, "content-type": "text/plain"}, b"\xff", "the CloudEvent's data is not UTF-8 text"),
    ],
)  # fmt: skip
def test_a_bad_event_is_refused_in_a_sentence(headers: dict[str, str], body: Any, sentence: str) -> None:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(Invalid) as refused:
        event_in(headers, sent, is_quoted=True)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
