"""A batch on disk: what is read is what was written, and nothing else passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipq.errors import Invalid
from hipq.journal import Batch, Position
from hipq.journal.batch import begins_a_header, check, decode, encode, salted
from hipq.journal.scan import Record, scan
from tests.journal.helpers import batch

SALT = salted("00112233445566778899aabbccddeeff")

letters = st.characters(categories=("L", "N", "P", "S"), exclude_characters="-,")
batches = st.builds(
    Batch,
    tenant=st.text(letters, min_size=1, max_size=30).filter(str.isprintable),
    jobtype=st.text("azAZ09_.-", min_size=1, max_size=30),
    first=st.integers(0, 2**62),
    payloads=st.lists(st.binary(max_size=50), min_size=1, max_size=20).map(tuple),
    date=st.integers(0, 253_402_300_799_000_000),
    options=st.just("{}") | st.text(st.characters(max_codepoint=126, min_codepoint=32), min_size=1, max_size=50),
)


def scanned(data: bytes, offset: int = 0, salt: int = SALT) -> list[object]:
    """As if these bytes stood at an offset of a segment."""
    return list(scan(lambda at, length: data[at - offset :][:length], salt, offset, offset + len(data)))


@settings(max_examples=50, deadline=None)
@given(batches, st.integers(0, 2**40))
def test_what_is_read_is_what_was_written(one: Batch, offset: int) -> None:
    check(one)
    data = encode(one, SALT, offset)
    (found,) = scanned(data, offset)
    assert isinstance(found, Record)
    assert found.is_marked
    assert decode(found.header, found.body) == one
    assert len(data) <= check(one), "what is waiting to be written is never thought to be less than it is"


@settings(max_examples=50, deadline=None)
@given(batches, st.integers(0, 2**40))
def test_every_beginning_of_a_header_is_known_as_one(one: Batch, offset: int) -> None:
    header = encode(one, SALT, offset).split(b"\n", 1)[0]
    assert all(begins_a_header(header[:length]) for length in range(len(header) + 1))


def test_a_batch_at_another_place_or_in_another_segment_is_not_one() -> None:
    data = encode(batch(1), SALT, 100)
    assert isinstance(scanned(data, 100)[0], Record)
    assert not isinstance(scanned(data, 101)[0], Record)
    assert not isinstance(scanned(data, 100, salted("ff" * 16))[0], Record)


def test_lines_are_readable_on_disk_and_a_payload_with_a_newline_is_counted() -> None:
    assert b",form=lines," in encode(batch(1, b"a", b"", b"c"), SALT, 0)
    assert b"\na\n\nc\n#:EndBatch\n" in encode(batch(1, b"a", b"", b"c"), SALT, 0)
    assert b"\n1\na\n3\nb\nc\n#:EndBatch\n" in encode(batch(1, b"a", b"b\nc"), SALT, 0)


@pytest.mark.parametrize("tenant", ["", "a-b", "a,b", "a\nb", "a\x00b", "\udc80", "a\u2028b", "x" * 201, "\u202eb"])
def test_a_tenant_that_could_not_be_read_back_is_refused(tenant: str) -> None:
    with pytest.raises(Invalid, match="a tenant must have"):
        check(batch(1, tenant=tenant))


@pytest.mark.parametrize("jobtype", ["", "a,b", "a b", "a\n", "../x", "ä", "x" * 201, "a|b", "%00"])
def test_a_jobtype_that_could_not_be_read_back_is_refused(jobtype: str) -> None:
    with pytest.raises(Invalid, match="a jobtype must be"):
        check(batch(1, jobtype=jobtype))


@pytest.mark.parametrize("wrong", [
    batch(-1), batch(2**63), batch(2**63 - 1, b"a", b"b"), batch(True),
    Batch("a", "b", 1, (), 0), Batch("a", "b", 1, (b"x",), -1), Batch("a", "b", 1, (b"x",), 2**63),
    Batch("a", "b", 1, ("text",), 0),  # type: ignore[arg-type]
    Batch("a", "b", 1, (b"x", None), 0),  # type: ignore[arg-type]
    batch(1, options=""), batch(1, options='{"a": "ä"}'), batch(1, options="x" * 70_000),
])  # fmt: skip
def test_what_could_not_be_read_back_is_refused_in_one_sentence(wrong: Batch) -> None:
    with pytest.raises(Invalid) as caught:
        check(wrong)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_position_is_a_text_and_comes_back() -> None:
    assert str(Position(3, 1200)) == "3:1200"
    assert Position.of("3:1200") == Position(3, 1200)
    assert Position(2, 10**12) < Position.of("3:0") < Position(3, 1)


@pytest.mark.parametrize("text", ["", "3", "3:", ":3", "a:b", "-1:3", "1:2:3", " 1:2", "1:2\n", "٣:١", "1" * 20 + ":1"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="a position in a journal is like"):
        Position.of(text)
