"""`hipq journal`: looked at while it is written, shown without tricks, recovered by hand."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
import threading
from pathlib import Path

import pytest

from hipq.journal import Journal, Position
from tests.cli.conftest import HipqCommand
from tests.docs.test_readme import blocks, console
from tests.docs.test_readme import run as run_program
from tests.journal.helpers import batch, drain, ends, file, opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A journal of two segments."""
    path = tmp_path / "the journal"
    with opened(path, start=False) as journal:
        journal.write_now(batch(1, b"one", b"two"))
        journal.write_now(batch(3, b"a\nb", b"\xff\x00", options='{"priority":5}'))
    with opened(path, start=False) as journal:
        journal.write_now(batch(5, b"\x1b[2Jcleared", "‮drawrof".encode()))
    return path


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.iterdir() if one.is_file()}


def damage(path: Path, number: int, offset: int) -> None:
    data = bytearray(file(path, number).read_bytes())
    data[offset] ^= 4
    file(path, number).write_bytes(data)


# -- check -----------------------------------------------------------------------------------------------------------
def test_a_journal_in_order_is_said_to_be(hipq: HipqCommand, place: Path) -> None:
    before = files(place)
    ran = hipq("journal", "check", str(place))
    assert ran.status == 0
    assert "in use             no" in ran.out
    assert re.search(r"^ +1 +\d+ +2 +4$", ran.out, flags=re.MULTILINE)
    found = hipq("journal", "check", str(place), "--json").json
    assert [(row["segment"], row["batches"], row["jobs"]) for row in found["segments"]] == [(1, 2, 4), (2, 1, 2)]
    assert (found["in_use"], found["found"]) == (False, [])
    assert files(place) == before, "it changes nothing"


def test_a_damaged_journal_is_exit_1_and_where_it_is_damaged_is_said(hipq: HipqCommand, place: Path) -> None:
    start, first, _ = ends(place, 1)
    damage(place, 1, start + 30)
    before = files(place)
    ran = hipq("journal", "check", str(place))
    assert ran.status == 1
    assert f"damage  {file(place, 1).name}: {first - start} bytes at {start}: " in ran.out
    (found,) = hipq("journal", "check", str(place), "--json").json["found"]
    assert (found["kind"], found["offset"], found["length"]) == ("damage", start, first - start)
    assert files(place) == before
    assert not (place / "quarantine").exists()


def test_a_batch_that_was_not_written_whole_is_no_damage(hipq: HipqCommand, place: Path) -> None:
    os.truncate(file(place, 2), file(place, 2).stat().st_size - 20)
    ran = hipq("journal", "check", str(place))
    assert ran.status == 0
    assert "was being written when it stopped" in ran.out


def test_a_missing_segment_and_a_damaged_identity_are_said(hipq: HipqCommand, place: Path) -> None:
    with opened(place, start=False) as journal:
        journal.write_now(batch(9))
    file(place, 2).unlink()
    (place / "identity").write_bytes(b"")
    ran = hipq("journal", "check", str(place))
    assert ran.status == 1
    assert "missing " in ran.out
    assert "identity: it is damaged or not there" in ran.out


def test_a_journal_is_checked_while_it_is_written_and_read(hipq: HipqCommand, tmp_path: Path) -> None:
    """As often as it is looked at, nothing that is only under way is called damage."""
    path = tmp_path / "busy"
    with opened(path, segment_bytes=3000) as journal:
        stopping = threading.Event()

        def work() -> None:
            number = 0
            while not stopping.is_set():
                for _ in range(20):
                    journal.write(batch(number, b"x" * (number % 400)), lambda _: None)
                    number += 1
                journal.wsync()
                token = journal.read_reserve(15, 60)
                assert token
                journal.rsync(token)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(40):
                found = hipq("journal", "check", str(path), "--json").json
                assert (found["in_use"], found["found"]) == (True, [])
                assert hipq("journal", "show", str(path), "--limit", "5").status == 0
        finally:
            stopping.set()
            thread.join()


# -- show ------------------------------------------------------------------------------------------------------------
def test_batches_are_shown_and_what_is_in_them_plays_no_tricks(hipq: HipqCommand, place: Path) -> None:
    before = files(place)
    ran = hipq("journal", "show", str(place))
    assert ran.status == 0
    assert "acme-resize.v2  2 jobs\n  1  one\n  2  two\n" in ran.out
    assert '2 jobs  {"priority":5}\n  3  a\\nb\n' in ran.out
    assert "  5  \\x1b[2Jcleared\n  6  \\u202edrawrof\n" in ran.out
    assert all(line.isprintable() for line in ran.out.splitlines())
    assert files(place) == before


def test_as_json_every_byte_of_a_payload_is_there(hipq: HipqCommand, place: Path) -> None:
    one, two, _ = hipq("journal", "show", str(place), "--json").json
    assert (one["tenant"], one["type"], one["options"]) == ("acme", "resize.v2", {})
    assert one["jobs"] == [{"number": 1, "text": "one"}, {"number": 2, "text": "two"}]
    assert two["options"] == {"priority": 5}
    assert base64.b64decode(two["jobs"][1]["base64"]) == b"\xff\x00"
    assert one["date"] == "2026-06-21T00:00:00.123457+00:00"


def test_a_page_says_how_to_see_the_next(hipq: HipqCommand, place: Path) -> None:
    ran = hipq("journal", "show", str(place), "--limit", "2", "--json")
    assert [row["jobs"][0]["number"] for row in ran.json] == [1, 3]
    (after,) = re.findall(r"there is more: add --after (\S+)", ran.err)
    ran = hipq("journal", "show", str(place), "--limit", "2", "--after", after, "--json")
    assert [row["jobs"][0]["number"] for row in ran.json] == [5]
    assert ran.err == ""


def test_what_is_damaged_is_not_shown_and_the_rest_is(hipq: HipqCommand, place: Path) -> None:
    damage(place, 1, ends(place, 1)[0] + 30)
    assert [row["jobs"][0]["number"] for row in hipq("journal", "show", str(place), "--json").json] == [3, 5]


def test_the_batches_of_one_tenant(hipq: HipqCommand, tmp_path: Path) -> None:
    with opened(tmp_path / "j", start=False) as journal:
        for number, tenant in enumerate(("acme", "other", "acme", "other"), 1):
            journal.write_now(batch(number, tenant=tenant))
    ran = hipq("journal", "show", str(tmp_path / "j"), "--tenant", "other", "--limit", "1", "--json")
    assert [row["jobs"][0]["number"] for row in ran.json] == [2]
    after = ran.err.split()[-1]
    ran = hipq("journal", "show", str(tmp_path / "j"), "--tenant", "other", "--after", after, "--json")
    assert ([row["jobs"][0]["number"] for row in ran.json], ran.err) == ([4], "")
    assert "no batches" in hipq("journal", "show", str(tmp_path / "j"), "--tenant", "nobody").err


def test_an_empty_journal_shows_nothing(hipq: HipqCommand, tmp_path: Path) -> None:
    Journal(tmp_path / "empty").close()
    ran = hipq("journal", "show", str(tmp_path / "empty"))
    assert (ran.status, ran.out, ran.err) == (0, "", "no batches found\n")


# -- recover ---------------------------------------------------------------------------------------------------------
def test_recovering_says_what_it_did(hipq: HipqCommand, place: Path) -> None:
    start, *_ = ends(place, 1)
    damage(place, 1, start + 30)
    os.truncate(file(place, 2), file(place, 2).stat().st_size - 20)
    ran = hipq("journal", "recover", str(place))
    assert ran.status == 0
    (kept,) = re.findall(r"they are kept in (quarantine/\S+)", ran.out)
    assert (place / kept).is_file()
    assert "they were cut off" in ran.out
    assert ran.out.endswith("2 jobs can be read, 1 place with damage, in quarantine\n")
    with opened(place) as journal:
        assert [one.first for one in drain(journal)] == [3]


def test_recovering_twice_is_once(hipq: HipqCommand, place: Path) -> None:
    os.truncate(file(place, 2), file(place, 2).stat().st_size - 20)
    assert hipq("journal", "recover", str(place), "--json").json["found"][0]["kind"] == "cut"
    assert hipq("journal", "recover", str(place), "--json").json["found"] == []
    assert hipq("journal", "recover", str(place)).out == "4 jobs can be read, no damage\n"


def test_a_journal_that_is_in_use_is_not_recovered(hipq: HipqCommand, place: Path) -> None:
    with opened(place, start=False):
        ran = hipq("journal", "recover", str(place))
    assert ran.status == 2
    assert f"the journal {place} is in use by another process" in ran.complaint


def test_as_new_it_is_a_journal_that_no_store_knows(hipq: HipqCommand, place: Path) -> None:
    before = hipq("journal", "check", str(place), "--json").json["journal"]
    ran = hipq("journal", "recover", str(place), "--as-new")
    assert ran.status == 2
    assert "may run a second time" in ran.complaint
    assert hipq("journal", "check", str(place), "--json").json["journal"] == before
    ran = hipq("journal", "recover", str(place), "--as-new", "--yes")
    with opened(place) as journal:
        assert journal.identity != before
        assert f"the journal is {journal.identity} now" in ran.out
        assert [one.first for one in drain(journal)] == [1, 3, 5]


# -- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("command", ["check", "show", "recover"])
def test_what_is_no_journal_is_refused_and_left_alone(hipq: HipqCommand, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path, why in (
        (tmp_path / "nowhere", "there is no folder"),
        (tmp_path / "file", "is not a folder"),
        (tmp_path / "folder", "there is no journal in"),
    ):
        ran = hipq("journal", command, str(path))
        assert ran.status == 2
        assert why in ran.complaint
    assert hipq("journal", command, "a\x1bb").status == 2
    assert not (tmp_path / "nowhere").exists()
    assert list((tmp_path / "folder").iterdir()) == []


@pytest.mark.parametrize("command", ["check", "show", "recover"])
def test_another_version_and_a_symbolic_link_are_refused(hipq: HipqCommand, place: Path, command: str) -> None:
    data = file(place, 2).read_bytes()
    file(place, 2).write_bytes(b"#:Journal version=2,and,so,on\n" + data)
    ran = hipq("journal", command, str(place))
    assert (ran.status, "has the version 2" in ran.complaint) == (2, True)
    file(place, 2).unlink()
    file(place, 2).symlink_to("/etc/passwd")
    ran = hipq("journal", command, str(place))
    assert (ran.status, "is a symbolic link" in ran.complaint) == (2, True)


@pytest.mark.parametrize("words", [["--limit", "0"], ["--limit", "x"], ["--after", "x"], ["--after", "-1:2"]])
def test_options_that_make_no_sense_are_refused(hipq: HipqCommand, place: Path, words: list[str]) -> None:
    ran = hipq("journal", "show", str(place), *words)
    assert ran.status == 2
    assert ran.out == ""


# -- docs/journal.md -------------------------------------------------------------------------------------------------
def test_every_example_of_the_guide_runs(tmp_path: Path) -> None:
    commands = programs = 0
    for language, block in blocks("docs/journal.md"):  # steps that need a daemon: tests/daemon/test_take_over.py
        if language == "console":
            commands += console(block, tmp_path)
        elif language == "python":
            run_program([sys.executable, "-c", block], tmp_path)
            programs += 1
        else:
            assert language == "text"
    assert (commands, programs) == (3, 1)


def test_a_position_is_shown_as_a_store_keeps_it(hipq: HipqCommand, place: Path) -> None:
    rows = hipq("journal", "show", str(place), "--json").json
    assert [Position.of(row["position"]).segment for row in rows] == [1, 1, 2]
    assert json.dumps(rows).isascii()
