"""What becomes of what is printed, and how little of it is held."""

from __future__ import annotations

import json
import time
import tracemalloc
from base64 import b64encode
from urllib.parse import quote

import pytest

from hipq.sandbox.output import CUT, MOST_LINE, MOST_LOG, MOST_SPAWNED, Output
from hipq.sandbox.secrets import Secrets
from hipq.sandbox.statuses import checked, from_exit


def printed(*blocks: bytes, stream: int = 0) -> Output:
    output = Output()
    for block in blocks:
        output.feed(stream, block)
    output.finish()
    return output


def test_lines_are_put_together_from_pieces() -> None:
    whole = b"one\nJ: a|\xff\0 x\ntwo"
    for size in range(1, len(whole)):
        output = printed(*[whole[at : at + size] for at in range(0, len(whole), size)])
        assert output.spawned == [("a", b"\xff\0 x")]
        assert output.log == "one\ntwo"


@pytest.mark.parametrize(
    ("line", "spawned"),
    [
        (b"J: a|", [("a", b"")]), (b"J: a.b-c_d9|x|y", [("a.b-c_d9", b"x|y")]), (b"J: a|x\r", [("a", b"x\r")]),
        (b"J: " + b"t" * 200 + b"|", [("t" * 200, b"")]), (b"J: " + b"t" * 201 + b"|", []), (b"J:a|x", []),
        (b"j: a|x", []), (b" J: a|x", []), (b"J: |x", []), (b"J: a", []), (b"J: a b|x", []), (b"J: \xff|x", []),
        (b"J:  a|x", []), (b"J: a/b|x", []), (b"J: \xd9\xa3|x", []),
    ],
)  # fmt: skip
def test_only_exact_lines_ask_for_a_job(line: bytes, spawned: list[tuple[str, bytes]]) -> None:
    output = printed(line + b"\n")
    assert output.spawned == spawned
    assert bool(output.log) == (not spawned)


def test_a_secret_in_a_line_that_asks_for_a_job_is_masked_wherever_it_stands() -> None:
    for line in (b"J: abcdefgh1234|x", b"J: " + b"x" * 191 + b"abcdefgh1234", b"J: a|abcdefgh1234"):
        output = Output(Secrets({"KEY": "abcdefgh1234"}))
        output.feed(0, line + b"\n")
        output.finish()
        assert "abcdef" not in f"{output.log} {output.spawned}", line
        assert "[secre" in f"{output.log} {output.spawned}"


SECRET = "half-of-a-secret/1234567890"
ENCODED = (SECRET.encode().hex(), b64encode(SECRET.encode()).decode())
SPELLINGS = (SECRET, *ENCODED, quote(SECRET, safe=""), json.dumps("/" + SECRET))


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_a_secret_on_which_a_long_line_is_cut_is_masked_too(spelled: str) -> None:
    for kept in range(1, len(spelled), 5):
        output = Output(Secrets({"KEY": SECRET}))
        line = "x" * (MOST_LINE - kept) + spelled
        output.feed(0, f"{line}\n".encode())
        output.finish()
        assert not any(half in output.log for half in (spelled[:kept][-4:], "half")) or kept < 4, output.log[-100:]
        assert "x" * 100 in output.log


@pytest.mark.parametrize("spelled", SPELLINGS)
def test_so_is_one_in_the_middle_of_which_its_process_was_killed(spelled: str) -> None:
    for killed, said in ((True, "x" * 350), (False, "x" * 500 + spelled[:10])):
        output = Output(Secrets({"KEY": SECRET}))
        output.feed(0, b"x" * 500 + spelled[:10].encode())
        output.finish(killed=killed)
        assert output.log.startswith(said)
        assert (spelled[:4] in output.log) != killed


def test_a_line_that_is_too_long_asks_for_no_job() -> None:
    assert printed(b"J: a|" + b"x" * (MOST_LINE - 5)).spawned == [("a", b"x" * (MOST_LINE - 5))]
    output = printed(b"J: a|" + b"x" * MOST_LINE + b"\nJ: b|y\n")
    assert output.spawned == [("b", b"y")]
    assert "[hipq: no job: a line may have 1,048,576 bytes]" in output.log


def test_a_job_may_ask_for_so_many() -> None:
    output = printed(b"J: a|x\n" * MOST_SPAWNED)
    assert (len(output.spawned), output.too_many) == (MOST_SPAWNED, False)


@pytest.mark.parametrize("together", [True, False])
def test_one_that_asks_for_more_asks_for_none(together: bool) -> None:
    lines = [b"J: a|x\n"] * (MOST_SPAWNED + 3)
    output = printed(b"".join(lines)) if together else printed(*lines)
    assert (output.spawned, output.too_many) == ([], True)
    assert "[hipq: none of these is added: 10,000 jobs is all a job may ask for]" in output.log


def test_the_end_of_a_log_is_kept_and_the_cut_is_marked() -> None:
    output = printed(*[f"line {number}\n".encode() for number in range(10_000)])
    assert output.log.startswith(CUT)
    assert output.log.endswith("line 9998\nline 9999")
    assert len(output.log) <= MOST_LOG + len(CUT)
    assert not printed(b"x" * 100).log.startswith(CUT)
    assert len(printed(b"\x01" * MOST_LOG).log) <= MOST_LOG + len(CUT)


def test_what_could_move_a_cursor_is_shown_instead() -> None:
    assert (
        printed(b"a\x1b[31mb\rc\td\x00\x7f \xe2\x80\xae\xc2\x9b").log == "a\\x1b[31mb\\x0dc\td\\x00\\x7f \\u202e\\x9b"
    )


def test_a_line_of_a_gigabyte_is_not_held() -> None:
    block = b"x" * (1 << 18)
    output = Output()
    tracemalloc.start()
    try:
        for _ in range((1 << 30) // len(block)):
            output.feed(0, block)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    output.finish()
    assert output.bytes == 1 << 30
    assert peak < 8 << 20
    assert "longer than 1,048,576 bytes" in output.log


@pytest.mark.parametrize("line", [b"\n", b"J: |\n", b"J: a|\n", b"x\n"])
@pytest.mark.parametrize("stream", [0, 1])
def test_a_hundred_megabytes_of_short_lines_cost_little(line: bytes, stream: int) -> None:
    output = Output()
    block = line * ((1 << 18) // len(line))
    since = time.process_time()
    for _ in range(400):
        output.feed(stream, block)
    assert time.process_time() - since < 20  # minutes, if each were looked at
    assert len(output.log) <= MOST_LOG + len(CUT)
    assert sum(map(len, output._log)) < 3 * MOST_LOG


@pytest.mark.parametrize(
    ("code", "status"),
    [(0, 200), (1, 501), (2, 502), (65, 465), (75, 175), (99, 599), (100, 599), (128, 599), (130, 502), (137, 509),
     (139, 511), (192, 564), (193, 599), (255, 599)],
)  # fmt: skip
def test_exit_codes_as_statuses(code: int, status: int) -> None:
    assert from_exit(code) == status


def test_statuses_that_are_none() -> None:
    for status in (100, 299, 400, 599):
        assert checked(status) == (status, "")
    for status in (0, 99, 300, 399, 600, -200):
        assert checked(status)[0] == 500
        assert str(status) in checked(status)[1]
    assert checked(True)[0] == checked("200")[0] == 500
