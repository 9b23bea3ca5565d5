"""What the store refused of a batch: kept once, said at every start, and read back as it was or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hipq.journal import Journal, JournalFinding, RefusedJob, Reserved
from hipq.journal.quarantine import RefusedFile, kept_refused
from tests.journal.helpers import batch, opened

REFUSED = [
    RefusedJob(batch(7, b"a\n#:Refused why=a trick\n"), "the first\nreason"),
    RefusedJob(batch(9, b"\xff\x00", options='{"priority":5}'), ""),
    RefusedJob(batch(10, b"c"), "ü" * 2000),
]


def reserved(journal: Journal) -> Reserved:
    journal.write_now(batch(7, b"a", b"b", b"\xff\x00", b"c"))
    token = journal.read_reserve(1, 60)
    assert token
    return token


def quarantined(folder: Path) -> Path:
    (found,) = (folder / "quarantine").iterdir()
    return found


def read(folder: Path) -> list[RefusedFile]:
    with opened(folder) as journal:
        found = kept_refused(journal._folder)
        assert [one.finding for one in found] == [one for one in journal.found if one.kind == "refused"]
        return found


def test_each_is_kept_with_its_reason(folder: Path) -> None:
    with opened(folder) as journal:
        journal.quarantine(reserved(journal), REFUSED)
        assert [one.why for one in journal.found] == ["the first reason", "", "ü" * 1000]
        before = journal.found[:]
    found = read(folder)
    assert [one.batch for one in found] == [one.batch for one in REFUSED]
    assert [one.finding for one in found] == before
    assert {one.finding.kept for one in found} == {f"quarantine/{quarantined(folder).name}"}


def test_set_aside_again_it_is_there_and_said_once(folder: Path) -> None:
    with opened(folder) as journal:
        token = reserved(journal)
        journal.quarantine(token, REFUSED[:1])
        journal.quarantine(token, REFUSED)
        assert len(journal.found) == 3
    assert [one.batch for one in read(folder)] == [one.batch for one in REFUSED]


def test_of_several_batches_nothing_is_set_aside(folder: Path) -> None:
    """The next reservation may end elsewhere, and what was kept under the end of this would be there twice."""
    with opened(folder) as journal:
        journal.write_now(batch(1))
        journal.write_now(batch(2))
        token = journal.read_reserve(2, 60)
        assert token
        with pytest.raises(ValueError, match="too many values"):
            journal.quarantine(token, REFUSED)
    assert not (folder / "quarantine").exists()


def test_damaged_or_cut_anywhere_nothing_else_is_read(folder: Path) -> None:
    with opened(folder) as journal:
        journal.quarantine(reserved(journal), REFUSED[:2])
        path, original = quarantined(folder), [one.batch for one in REFUSED[:2]]
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at])
            found = [one.batch for one in kept_refused(journal._folder)]
            assert found, "it is said that there is something"
            assert found in ([None], original[:1], [original[0], None], original), at
            path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
            found = [one.batch for one in kept_refused(journal._folder)]
            assert found in ([None], [None, original[1]], [original[0], None], original), at


def test_what_was_set_aside_before_costs_the_next_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each used to be compared with all that were found before: minutes, for some ten thousand of them."""
    compared = 0

    def equal(_one: object, _other: object) -> bool:
        nonlocal compared
        compared += 1
        return False

    with opened(folder) as journal:
        token = reserved(journal)
        some = [RefusedJob(batch(n, b"x"), f"the job {n}") for n in range(300)]
        journal.quarantine(token, some[:150])
        monkeypatch.setattr(JournalFinding, "__eq__", equal)
        journal.quarantine(token, some[150:])
        assert len(journal.found) == 300
        assert compared < 150
