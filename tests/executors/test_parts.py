"""before, beforeEach and afterEach: their order, what they leave to the body, and what becomes of their failures."""

from __future__ import annotations

import pytest

from hipq.sandbox import ContextPool
from tests.executors.running import LANGUAGES, handler, pool, run


def each_language() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lang", LANGUAGES)


@each_language()
def test_before_beforeeach_and_aftereach_run_in_their_order(contexts: ContextPool, lang: str) -> None:
    said = {
        "python": "print('{0}')", "node": "console.log('{0}')", "php": "echo \"{0}\\n\";", "shell": "echo {0}",
    }[lang]  # fmt: skip
    given = handler(
        lang, said.format("body"), before=said.format("before"),
        beforeEach=said.format("beforeEach"), afterEach=said.format("afterEach"),
    )  # fmt: skip
    first = run(contexts, given, b"1", b"2")
    assert [report.log for report in first.reports] == ["before\nbeforeEach\nbody", "body\nafterEach"]
    second = run(contexts, given, b"1")
    assert second.only.log == "beforeEach\nbody\nafterEach"


@each_language()
def test_what_before_defines_is_there_for_the_body(contexts: ContextPool, lang: str) -> None:
    parts = {
        "python": ("import math\ndef double(x): return 2 * x", "each = double(4)",
                   "return [each, math.floor(1.5), 'x']"),
        "node": ("this.double = x => 2 * x", "this.each = double(4)", "return [each, Math.floor(1.5), 'x']"),
        "php": ("$double = fn($x) => 2 * $x; function floor_of($x) { return (int) floor($x); }",
                "$each = $double(4);", "return [$each, floor_of(1.5), 'x'];"),
        "shell": ("double() { echo $((2 * $1)); }", "each=$(double 4)", "status 200 \"[$each,1,\\\"x\\\"]\""),
    }[lang]  # fmt: skip
    ran = run(contexts, handler(lang, parts[2], before=parts[0], beforeEach=parts[1]), b"1", b"2")
    assert [report.data.replace(b" ", b"") for report in ran.reports] == [b'[8,1,"x"]'] * 2


@each_language()
@pytest.mark.parametrize("part", ["before", "beforeEach"])
def test_a_preparation_that_fails_is_an_error_of_each_job(contexts: ContextPool, lang: str, part: str) -> None:
    wrong = {
        "python": "raise ValueError('not ready')", "node": "throw new Error('not ready')",
        "php": "throw new Exception('not ready');", "shell": "echo not ready; (exit 7)",
    }[lang]  # fmt: skip
    ran = run(contexts, handler(lang, ";" if lang in ("node", "php") else ":" if lang == "shell" else "pass",
                                **{part: wrong}), b"1", b"2")  # fmt: skip
    assert ran.statuses == [500, 500]
    assert all(report.error.startswith("its handler did not get ready: ") for report in ran.reports)
    assert "not ready" in ran.reports[0].error + ran.reports[0].log
    assert not ran.reports[0].crashed


def test_a_preparation_that_crashes_or_hangs_is_an_error_of_each_job(contexts: ContextPool) -> None:
    ran = run(contexts, handler("python", "pass", before="import os; os._exit(3)"), b"1", b"2")
    assert [(report.status, report.crashed) for report in ran.reports] == [(503, True)] * 2
    ran = run(contexts, handler("python", "pass", beforeEach="while True: pass"), b"1", b"2", seconds=0.5)
    assert [(report.status, report.crashed) for report in ran.reports] == [(504, True)] * 2


def test_an_aftereach_that_fails_changes_nothing_but_the_context(contexts: ContextPool) -> None:
    given = handler("python", "return 'done'", afterEach="raise ValueError('late')")
    ran = run(contexts, given, b"1", b"2")
    assert [(report.status, report.data) for report in ran.reports] == [(200, b"done")] * 2
    assert "afterEach: ValueError: late" in ran.reports[1].log
    assert given.home not in contexts.idle()


def test_time_is_shared_out_over_the_batch() -> None:
    with pool() as fresh:
        given = handler(
            "python", "pass", before="import time; time.sleep(0.4)", afterEach="import time; time.sleep(0.2)"
        )
        ran = run(fresh, given, b"1", b"2", b"3", b"4")
        each = [report.seconds for report in ran.reports]
        assert min(each) > 0.1
        assert each[3] > 0.3
        assert sum(each) > 0.6
