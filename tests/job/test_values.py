"""Orders, payloads, names, times: what is accepted, what is refused, and in which words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hipq.errors import HipqError, Invalid, StoreUnavailable
from hipq.job import names, payload
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN, aged, order
from hipq.job.when import LATEST, later, moment, seconds, to_datetime

HUGE = pytest.param(10**5000, id="5,000 digits")
TIMES = st.integers(0, LATEST)
PRIORITIES = st.integers(PRIORITY_MIN, PRIORITY_MAX)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abcü", max_size=5), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(TIMES, PRIORITIES, TIMES, PRIORITIES)
@example(0, PRIORITY_MIN, LATEST, PRIORITY_MAX)
@example(0, PRIORITY_MAX, LATEST, PRIORITY_MIN)
@example(5, -1, 5, 0)
@example(5, 0, 6, 0)
def test_ranks_sort_as_their_order_says_for_every_32_bit_priority(t: int, p: int, u: int, q: int) -> None:
    second = 1_000_000
    for grain in (0.001, 1, 86_400):
        by_time, micros = order("time", grain), round(grain * second)
        assert (by_time.rank(t, p) < by_time.rank(u, q)) == ((t // micros, p) < (u // micros, q))
    by_priority = order("priority")
    assert (by_priority.rank(t, p) < by_priority.rank(u, q)) == ((p, t) < (q, u))
    for worth in (0.000001, 60, 86_400):
        by_age, micros = aged(worth), round(worth * second)
        assert (by_age.rank(t, p) < by_age.rank(u, q)) == (t + p * micros < u + q * micros)


@given(JSON)
def test_every_json_value_survives(value: Any) -> None:
    assert payload.decode(payload.encode(value)) == value
    assert payload.parse(payload.encode(value)) == value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def nested_empty(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_a_hundred_levels_are_fine() -> None:
    assert payload.decode(payload.encode(nested_empty(100))) == nested_empty(100)
    assert payload.decode(payload.encode(nested(100))) == nested(100)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "JSON does not have"),
        ({"a": [1, float("inf")]}, "JSON does not have"),
        (2**63, "outside 64 bits"),
        (-(2**63) - 1, "outside 64 bits"),
        (10**5000, "outside 64 bits"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "lone surrogate"),
        ("a\x00b", "NUL"),
        ({"a\x00": 1}, "NUL"),
        (nested(101), "deeper than 100"),
        (nested_empty(101), "deeper than 100"),
        ({1: "a", "1": "b"}, "has the key 1"),
        (msgspec.Raw(b'{"a": NaN'), "raw text"),
        (nested(100_000), "deeper than 100"),
        (object(), "is not JSON"),
        ({("a", "b"): 1}, "is not JSON"),
        ("x" * (17 << 20), "the limit is"),
    ],
    ids=lambda value: str(type(value).__name__) if not isinstance(value, str) or len(value) > 30 else repr(value),
)
def test_what_no_store_could_keep_is_refused_in_one_sentence(value: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        payload.encode(value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "same key twice"),
        ("[" * 100_000, "deeper than 100"),
        ("1" * 5000, "outside 64 bits"),
        ("1e999", "JSON does not have"),
        ("NaN", "JSON does not have"),
        ("{", "is not JSON"),
        ("", "is not JSON"),
        ('"\\u0000"', "NUL"),
        ('"\\ud800"', "lone surrogate"),
        ("{}".encode("utf-16"), "not UTF-8"),
    ],
)
def test_typed_json_is_read_strictly(text: str | bytes, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        payload.parse(text)


@pytest.mark.parametrize("good", ["a", "orders", "a_b", "z" * 40])
def test_good_names(good: str) -> None:
    assert names.name(good, "a name") == good


@pytest.mark.parametrize(
    "bad", ["", "A", "1a", "_a", "a-b", "a b", "a1", "a|b", "a,b", "a\n", "../a", "ש", "z" * 41, None, 5]
)
def test_bad_names(bad: Any) -> None:
    with pytest.raises(Invalid, match="lower case letters"):
        names.name(bad, "a name")


@pytest.mark.parametrize(
    "bad", ["", "a*", "a|b", "a,b", "a\n", "a b", "%00", "../a", "ש", "z" * 201, "z" * 65536, None]
)
def test_bad_job_types(bad: Any) -> None:
    with pytest.raises(Invalid, match="a job type must be"):
        names.job_type(bad)


@pytest.mark.parametrize("bad", ["", "a\nb", "a\x00b", "\ud800", "k" * 501, "k" * 65536, 7, "a\u202eb"])
def test_bad_keys(bad: Any) -> None:
    with pytest.raises(Invalid, match="a job key must"):
        names.key(bad)


@pytest.mark.parametrize("good", ["order-17", "a|b,c", "%00", "../x", "שלום", " ", "k" * 500])
def test_keys_come_from_outside_so_anything_printable_goes(good: str) -> None:
    assert names.key(good) == good


@pytest.mark.parametrize("bad", [-(2**31) - 1, 2**31, 10**30, HUGE, 1.5, True, "5", None])
def test_bad_priorities(bad: Any) -> None:
    with pytest.raises(Invalid, match="priority must be a whole number from -2147483648 to 2147483647"):
        names.priority(bad)


@pytest.mark.parametrize("bad", [0, -1, 10**7, 0.0005, 1.0005, 1 / 3, float("nan"), float("inf"), True, "1", None])
def test_bad_factors(bad: Any) -> None:
    with pytest.raises(Invalid, match="throttle_factor must be"):
        names.throttle_factor(bad)


@pytest.mark.parametrize("bad", ["Shop", "hipq_x", "a" * 51, "sqlite_a", "a;b", ""])
def test_bad_table_names(bad: str) -> None:
    with pytest.raises(Invalid, match="a table name must be"):
        names.table(bad)


@pytest.mark.parametrize(
    "bad", [-1, float("nan"), float("inf"), 1e12, 10**30, HUGE, "5", None, True, timedelta(days=99999)]
)
def test_bad_durations(bad: Any) -> None:
    with pytest.raises(Invalid, match="delay must be"):
        seconds(bad, "delay")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (datetime(2030, 1, 1), "no time zone"),
        (datetime(1969, 12, 31, tzinfo=UTC), "1970 and 9999"),
        (datetime(1, 1, 1, tzinfo=UTC), "1970 and 9999"),
        ("2030-01-01", "must be a datetime"),
        (5, "must be a datetime"),
    ],
)
def test_bad_moments(bad: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        moment(bad)


def test_the_year_9999_is_fine_and_nothing_goes_beyond_it() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert to_datetime(moment(last)) == last
    assert later(moment(last), 10.0) == LATEST


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_a_moment_survives_to_the_microsecond(value: datetime) -> None:
    assert to_datetime(moment(value)) == value


def test_the_sentence_of_an_error_is_its_docstring() -> None:
    assert str(StoreUnavailable()) == (StoreUnavailable.__doc__ or "").splitlines()[0]
    assert issubclass(StoreUnavailable, HipqError)
