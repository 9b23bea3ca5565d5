"""What a reply means: each status, and the texts that are kept of it."""

from __future__ import annotations

import pickle
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from hipq.job import payload
from hipq.job.outcome import Failed, Ok, Retry, ServiceError, Wait
from hipq.requests.reply import LONGEST_PAUSE, SHOWN, outcome, retry_after
from hipq.transports.base import Reply

NOW = 1_445_412_470.0  # Wed, 21 Oct 2015 07:27:50 GMT


def means(status: int, body: bytes = b"", *, waits: bool = False, reply_key: Any = None, **headers: str) -> Any:
    reply = Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})
    return outcome(reply, waits=waits, reply_key=reply_key, now=NOW)


# -- 2xx --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_where_an_answer_is_expected_every_2xx_waits_for_it(status: int) -> None:
    found = means(status, b"whatever", waits=True)
    assert isinstance(found, Wait)
    assert found.key is None


def test_202_waits_even_if_nothing_was_said_of_an_answer() -> None:
    assert isinstance(means(202, b'{"a": 1}'), Wait)
    assert means(202, b'{"a": "x"}', reply_key="a").key == "x"


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (b"", None),
        (b'{"a": [1, null]}', {"a": [1, None]}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b"7", 7),
        (b"null", None),
        (b"done", "done"),
        ("fertig ä".encode(), "fertig ä"),
        (b"a\x00b", "a\ufffdb"),
        (b'{"a": "x\\u0000"}', '{"a": "x\\u0000"}'),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        (b'{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        (b"NaN", "NaN"),
        (b"123456789012345678901234567890", "123456789012345678901234567890"),
        (b"[" * 200 + b"]" * 200, "[" * 200 + "]" * 200),
        (b"[" * 100_000, "[" * 100_000),
    ],
)
def test_a_good_reply_is_the_result_as_json_or_else_as_text(body: bytes, result: Any) -> None:
    found = means(201, body)
    assert isinstance(found, Ok)
    assert (found.result, found.exitcode) == (result, 201)


def test_a_charset_is_believed_where_it_is_a_common_one() -> None:
    assert means(200, "für".encode("latin-1"), content_type="text/plain; charset=ISO-8859-1").result == "für"
    assert means(200, "für".encode("cp1252"), content_type='text/plain; charset="windows-1252"').result == "für"
    assert means(200, "für".encode(), content_type="text/plain; charset=punycode").result == "für"


@given(some.binary(max_size=60))
def test_any_reply_can_be_stored(body: bytes) -> None:
    payload.encode(means(200, body).result)


# -- the key ----------------------------------------------------------------------------------------------------------
def test_the_reply_may_name_the_key_of_the_answer() -> None:
    assert means(200, b'{"job": {"ids": ["a-1"]}}', waits=True, reply_key="job.ids.0").key == "a-1"
    assert means(200, b'{"id": 17}', waits=True, reply_key="id").key == "17"
    assert means(200, b"ref=9", waits=True, reply_key=lambda reply: reply.body.decode().partition("=")[2]).key == "9"
    assert means(200, waits=True, reply_key=lambda reply: reply.headers["x-ref"], X_Ref="h").key == "h"


@pytest.mark.parametrize(
    ("body", "where", "sentence"),
    [
        (b'{"id": 5}', "job.id", "the reply has no field job$"),
        (b"[]", "0", "the reply has no field 0$"),
        (b"", "id", "the reply is not JSON"),
        (b"<html>", "id", "the reply is not JSON"),
        (b'{"id": null}', "id", "must be text or a whole number; the reply has None"),
        (b'{"id": true}', "id", "must be text or a whole number; the reply has True"),
        (b'{"id": ""}', "id", "must be text or a whole number"),
        (b'{"id": 1.5}', "id", "must be text or a whole number"),
        (b'{"id": {}}', "id", "must be text or a whole number"),
        (b"{}", lambda _reply: None, "must be text or a whole number"),
    ],
)
def test_a_reply_without_its_key_is_the_end_since_it_was_asked(body: bytes, where: Any, sentence: str) -> None:
    found = means(200, body, waits=True, reply_key=where)
    assert isinstance(found, Failed)
    assert re.search(sentence, str(found.reason))


# -- 3xx and 4xx ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        ("https://u:secret@other.example:8/secret?q=secret", "redirects are not followed; it points to other.example"),
        ("/secret", "redirects are not followed; it points to the same server"),
        ("http://[bad", "redirects are not followed; it points to something that is no URL"),
        ("", "it is not what was asked for"),
    ],
)
@pytest.mark.parametrize("waits", [True, False])
def test_a_redirect_fails_and_says_where_it_pointed(location: str, sentence: str, waits: bool) -> None:
    found = means(302, b"body", waits=waits, location=location)
    assert isinstance(found, Failed)
    assert found.reason == f"302 Found: {sentence}"


@pytest.mark.parametrize("waits", [True, False])
def test_a_4xx_fails_with_the_start_of_what_was_said(waits: bool) -> None:
    found = means(404, b"<h1>no\r\n\x00 such\torder</h1>", waits=waits)
    assert isinstance(found, Failed)
    assert (found.reason, found.exitcode) == ("404 Not Found: <h1>no such order</h1>", 404)
    assert means(400).reason == "400 Bad Request"
    assert means(499, b"x").reason == "499: x"
    assert means(499, b"x").exitcode == 499


def test_a_long_explanation_is_cut() -> None:
    reason = means(422, ("ä" * 100_000).encode()).reason
    assert reason.endswith("ä…")
    assert len(reason.partition(": ")[2]) == SHOWN


@given(some.binary(max_size=300), some.integers(300, 499))
def test_every_reason_can_be_stored_and_is_one_line(body: bytes, status: int) -> None:
    found = means(status, body)
    text = found.reason
    payload.encode(text)
    assert text.isprintable()
    assert len(text) < SHOWN + 60


# -- later ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [408, 425, 429])
@pytest.mark.parametrize("waits", [True, False])
def test_too_early_is_tried_again_when_the_service_says_or_as_the_retry_handler_does(status: int, waits: bool) -> None:
    found = means(status, b"slow down", waits=waits)
    assert isinstance(found, Retry)
    assert found.delay is None
    assert found.reason.startswith(f"{status} ")
    assert found.reason.endswith(": slow down")
    assert means(status, retry_after="7").delay == 7.0
    assert means(status, retry_after="Wed, 21 Oct 2015 07:28:00 GMT").delay == 10.0
    assert means(status, retry_after="0").delay == 1.0, "without a pause it would go round and round"
    assert means(status, retry_after="soon").delay is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0), (" 5 ", 5.0), ("0", 0.0), ("86401", LONGEST_PAUSE), ("9" * 5000, LONGEST_PAUSE),
        ("-5", None), ("+5", None), ("1.5", None), ("", None), ("soon", None), ("٣", None), ("5, 6", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 10.0), ("Wednesday, 21-Oct-15 07:28:00 GMT", 10.0),
        ("Wed Oct 21 07:28:00 2015", 10.0),
        ("Wed, 21 Oct 2015 07:27:49 GMT", None), ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_PAUSE),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None), ("Wed, 21 Oct 99999 07:28:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == seconds


def test_a_date_without_a_zone_is_not_of_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert retry_after({"retry-after": "Wed Oct 21 07:28:00 2015"}, NOW) == 10.0
    finally:
        monkeypatch.undo()
        time.tzset()


@given(some.text(max_size=40))
def test_no_retry_after_breaks_it(value: str) -> None:
    found = retry_after({"retry-after": value}, NOW)
    assert found is None or 0 <= found <= LONGEST_PAUSE


# -- errors -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("status", "exitcode", "text"),
    [
        (500, 500, "500 Internal Server Error: oh"),
        (503, 503, "503 Service Unavailable: oh"),
        (599, 599, "599: oh"),
        (600, 500, "600 (no status that HTTP knows): oh"),
        (999, 500, "999 (no status that HTTP knows): oh"),
        (0, 500, "0 (no status that HTTP knows): oh"),
        (101, 500, "101 Switching Protocols: oh"),
        (150, 500, "150 (no status that HTTP knows): oh"),
    ],
)
def test_anything_else_is_an_error(status: int, exitcode: int, text: str, waits: bool) -> None:
    with pytest.raises(ServiceError) as error:
        means(status, b"oh", waits=waits, retry_after="9")
    for found in (error.value, pickle.loads(pickle.dumps(error.value))):
        assert (str(found), found.exitcode, found.retry_after) == (text, exitcode, 9.0)


def test_an_error_without_a_time_has_none() -> None:
    with pytest.raises(ServiceError) as error:
        means(502)
    assert error.value.retry_after is None


@given(some.integers(-5, 1200), some.booleans())
def test_every_status_means_something(status: int, waits: bool) -> None:
    try:
        found: Any = means(status, waits=waits)
    except ServiceError as error:
        found = error
    assert isinstance(found, (Ok, Failed, Retry, Wait, ServiceError))
    assert isinstance(found, ServiceError) == (status not in range(200, 500))
