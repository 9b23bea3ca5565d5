"""The body of an `add`: lines, a JSON array, or byte-counted binary; and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipq.daemon.http.bodies import payloads
from hipq.daemon.http.idempotency import ids_of, runs
from hipq.daemon.http.reply import HttpError
from hipq.daemon.http.strict_json import strict
from hipq.errors import Invalid

JSON = "application/json"
BINARY = "application/octet-stream"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"a\r\n", [b"a\r"]),
        (b"\xff\x00\n", [b"\xff\x00"]),
        (b"#:EndBatch\n", [b"#:EndBatch"]),
    ],
)
def test_each_line_is_a_job_byte_for_byte(body: bytes, found: list[bytes]) -> None:
    for kind in ("", "text/plain", "application/x-www-form-urlencoded"):
        assert payloads(kind, body, 100) == found


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('["a", "é\\n", ""]', [b"a", "é\n".encode(), b""]),
        ('[1, 2.5, true, null, {"a": [1, 2]}, [3]]', [b"1", b"2.5", b"true", b"null", b'{"a":[1,2]}', b"[3]"]),
        ('{"a": 1}', [b'{"a":1}']),
        ('"text"', [b"text"]),
        ("5", [b"5"]),
        ('["\\u0000"]', [b"\0"]),
        ('[{"b":1,"a":2}]', [b'{"b":1,"a":2}']),
    ],
)
def test_each_element_of_a_json_array_is_a_job(body: str, found: list[bytes]) -> None:
    assert payloads(JSON, body.encode(), 100) == found
    assert payloads("application/vnd.x+json", body.encode(), 100) == found


def test_binary_is_counted() -> None:
    parts = [b"", b"a\nb", b"\x00\xff", b"3\nabc\n", b"x" * 70_000]
    body = b"".join(b"%d\n%s\n" % (len(part), part) for part in parts)
    assert payloads(BINARY, body, 100) == parts


@pytest.mark.parametrize(
    "body",
    [b"x", b"3\nab", b"3\nabc", b"3\nabcd\n", b"2\nabc\n", b"-1\n\n", b"+1\na\n", b"1", b"\n", b"1\na\n2",
     b"9" * 30 + b"\n", b"99999999999\na\n", "٣\nabc\n".encode()],
)  # fmt: skip
def test_binary_that_is_counted_wrong_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match=r"payload \d"):
        payloads(BINARY, body, 100)


@pytest.mark.parametrize("kind", ["", "text/plain", JSON, BINARY])
def test_an_empty_body_has_no_job_in_it(kind: str) -> None:
    with pytest.raises(Invalid, match="empty"):
        payloads(kind, b"", 100)


BAD_JSON: list[tuple[Any, str]] = [
    ("[NaN]", "NaN"),
    ("[Infinity]", "Infinity"),
    ("[1e999]", "too large"),
    ("[-1e999]", "too large"),
    ("[9223372036854775808]", "64 bits"),
    ("[1" + "0" * 5000 + "]", "64 bits"),
    ("[" * 100_000, "deep"),
    ("[" * 200 + "]" * 200, "deep"),
    ('["\\ud800"]', "surrogate"),
    ('[{"a": "\\udfff"}]', "surrogate"),
    ('[{"a": 1, "a": 2}]', "same key twice"),
    ('{"a": {"b": 1, "b": 1}}', "same key twice"),
    ("[1, 2", "not JSON"),
    ("[1,]", "not JSON"),
    ("{'a': 1}", "not JSON"),
    ("[01]", "not JSON"),
    ("[1] [2]", "not JSON"),
    ("   ", "not JSON"),
    ("[]", "empty"),
    (b"\xff\xfe[\x001\x00]\x00", "UTF-8"),
    ("[1]".encode("utf-16"), "UTF-8"),
    (b'["\xff"]', "UTF-8"),
]


@pytest.mark.parametrize(("body", "why"), BAD_JSON, ids=[why + str(n) for n, (_, why) in enumerate(BAD_JSON)])
def test_json_that_nobody_can_have_meant_is_refused_in_one_sentence(body: Any, why: str) -> None:
    with pytest.raises(Invalid, match=why) as told:
        payloads(JSON, body if isinstance(body, bytes) else body.encode(), 100)
    assert len(str(told.value)) < 300


def test_a_request_has_only_so_many_jobs() -> None:
    for kind, body in (("", b"a\n" * 11), (JSON, json.dumps([1] * 11).encode()), (BINARY, b"1\na\n" * 11)):
        with pytest.raises(HttpError) as told:
            payloads(kind, body, 10)
        assert told.value.status == 413
    with pytest.raises(HttpError):
        payloads("multipart/form-data", b"x", 10)


words = st.text(st.characters(exclude_categories=["Cs"]))
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(json_values, min_size=1, max_size=5), st.sampled_from([None, 1, (",", ":")]))
def test_an_element_means_what_was_sent_however_it_was_spelled(values: list[Any], style: Any) -> None:
    body = json.dumps(values, indent=style) if style == 1 else json.dumps(values, separators=style)
    found = payloads(JSON, body.encode(), 100)
    assert len(found) == len(values)
    for value, text in zip(values, found, strict=True):
        assert text.decode() == value if isinstance(value, str) else json.loads(text) == value


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_whatever_comes_is_payloads_or_a_sentence(body: bytes) -> None:
    for kind in ("", JSON, BINARY):
        with suppress(Invalid, HttpError):
            assert payloads(kind, body, 100)
    with suppress(Invalid):
        value = strict(body)
        assert strict(json.dumps(value)) == value


@given(st.lists(st.integers(1, 50).map(lambda number: number << 16 | 3), max_size=30))
def test_ids_in_short_are_the_same_ids(ids: list[int]) -> None:
    assert ids_of(runs(ids)) == ids
    assert len(runs([number << 16 | 3 for number in range(1, 1000)])) == 1
