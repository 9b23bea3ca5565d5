"""Values of masked fields, in whatever they are hidden."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipq.dashboard import bodies
from hipq.dashboard.masks import MASK, masked
from hipq.dashboard.site import Site
from hipq.errors import Invalid

SECRET = "4111-1111"
NAMES = frozenset({"card", "pin"})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"card": SECRET, "id": 7}, {"card": MASK, "id": 7}),
        ({"Card": {"number": SECRET}}, {"Card": MASK}),
        ([{"a": [{"CARD": [SECRET]}]}], [{"a": [{"CARD": MASK}]}]),
        ({"cards": "two", "discard": 1, "card_type": "x"}, {"cards": "two", "discard": 1, "card_type": "x"}),
        ({"body": json.dumps({"card": SECRET, "id": 7})}, {"body": f'{{"card":"{MASK}","id":7}}'}),
        ({"body": '{"id": 7}'}, {"body": '{"id": 7}'}),
        (json.dumps(json.dumps({"card": SECRET})), json.dumps(f'{{"card":"{MASK}"}}', ensure_ascii=False)),
        (f'{{"card": "{SECRET}', f'{{"card": {MASK}'),
        (f"ValueError: {{'card': '{SECRET}', 'id': 7}}", f"ValueError: {{'card': {MASK}"),
        (f'bad {{\\"card\\" : {SECRET}}}\nat line 7', f'bad {{\\"card\\" : {MASK}\nat line 7'),
        (f"a\ncard={SECRET}\nb\nPIN: {SECRET}\nc", f"a\ncard={MASK}\nb\nPIN: {MASK}\nc"),
        (f'card: {{\n "number": "{SECRET}"\n}}', f"card: {MASK}"),
        ("KeyError: 'card'", "KeyError: 'card'"),
        (None, None),
        (1.5, 1.5),
        (("card", SECRET), ["card", SECRET]),
    ],
)  # fmt: skip
def test_what_is_shown(value: Any, shown: Any) -> None:
    assert masked(value, NAMES) == shown


def test_without_names_everything_is_shown() -> None:
    value = {"card": SECRET}
    assert masked(value, ()) is value


def test_what_is_too_deep_to_be_looked_through_is_not_shown() -> None:
    value: Any = {"card": SECRET}
    for _ in range(5_000):
        value = [value]
    shown = masked(value, NAMES)
    while isinstance(shown, list):
        (shown,) = shown
    assert shown == MASK
    assert SECRET not in masked("[" * 5_000 + '{"card": "' + SECRET + '"}' + "]" * 5_000, NAMES)


NESTED = st.recursive(
    st.one_of(st.none(), st.integers(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["card", "Pin", "a", "b"]), inner, max_size=3),
        inner.map(json.dumps),
    ),
    max_leaves=10,
)


def planted(value: Any) -> Any:
    """The value with the secret in every field that has a masked name."""
    if isinstance(value, dict):
        return {name: SECRET if name.lower() in NAMES else planted(one) for name, one in value.items()}
    return [planted(one) for one in value] if isinstance(value, list) else value


@given(NESTED)
def test_no_value_of_a_masked_field_is_left_anywhere(value: Any) -> None:
    assert SECRET not in json.dumps(masked(planted(value), NAMES))
    assert SECRET not in json.dumps(masked(json.dumps(planted(value)), NAMES))
    assert SECRET not in json.dumps(masked({"deep": [json.dumps(planted(value))]}, NAMES))


@given(NESTED)
def test_what_has_no_masked_field_is_as_it_was(value: Any) -> None:
    assert masked(value, {"nobody has this"}) == value


@pytest.mark.parametrize("mask", ["card", ["card", ""], [1], "", [b"card"]])
def test_what_is_no_list_of_names_is_refused(mask: Any) -> None:
    with pytest.raises(Invalid, match='like \\["card"\\]'):
        Site([], mask=mask)


def test_a_site_shows_values_without_masked_fields() -> None:
    assert Site([], mask=["CARD"]).shown({"card": SECRET, "pin": 1}) == {"card": MASK, "pin": 1}


def test_a_long_text_with_many_values_is_masked_at_once() -> None:
    text = "card: 1\n" * 200_000
    began = time.monotonic()
    assert masked(text, ["card"]) == f"card: {MASK}\n" * 200_000
    assert time.monotonic() - began < 5, "it took time by the square of its length"


@pytest.mark.parametrize("text", [
    '{"card":"4111","a":1,"card":2}', '{"a":{"card":"4111"},"a":2}', '{"\\u0063ard":"4111","\\u0063ard":1}',
    '{"a":{"C\\u0061rd":"4111"},"a":{}}',
])  # fmt: skip
def test_a_name_that_is_there_twice_hides_no_value(text: str) -> None:
    assert "4111" not in masked(text, ["card"])
    assert "4111" not in masked({"raw": text}, ["card"])["raw"]
    assert "4111" not in bodies.shown(text, ["card"]).text
    assert b"4111" not in bodies.download("x", text, ["card"]).body


def test_what_has_no_masked_name_stays_as_it_was_written() -> None:
    text = '{"z": 1.0,  "z": 2, "a": 1e5}'
    assert masked(text, ["card"]) == text
    assert bodies.download("x", text, ["card"]).body.decode() == text
