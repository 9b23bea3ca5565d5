"""What a line of the bench says, and how its figures are taken."""

from __future__ import annotations

import pytest
from bench.lines import THE_LIMIT, Line, figure
from bench.measure import best, interleaved, percentile
from bench.results import Found, Results


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (Line("a rate that is just enough", 800, 1000, 0.8), "ok"),
        (Line("a rate that is not", 799, 1000, 0.8), "MISSED"),
        (Line("a time that is just short enough", 12, 10, 1.2, "ms"), "ok"),
        (Line("a time that is not", 12.1, 10, 1.2, "ms"), "MISSED"),
        (Line("under a limit", 2.9, 3, 1.0, "ms", THE_LIMIT), "ok"),
        (Line("over a limit", 2.1, 2, 1.0, "queries/s", THE_LIMIT), "MISSED"),
        (Line("to be read only", 1, 1000, 0.0), ""),
        (Line("nothing to compare with", 1, 0, 0.8), "ok"),
    ],
    ids=lambda value: value.name if isinstance(value, Line) else "",
)
def test_a_rate_is_to_be_at_least_and_anything_else_at_most(line: Line, verdict: str) -> None:
    assert line.verdict == verdict
    assert str(line).startswith(line.name)
    assert str(line).endswith(verdict)


def test_a_line_names_both_figures_against_whom_and_the_target() -> None:
    words = str(Line("drain", 31_000, 4_000, 10.0, against="huey")).split()
    assert words == ["drain", "31,000", "4,000", "jobs/s", "huey", "7.75", ">=", "10.00", "MISSED"]


def test_a_figure_has_three_digits_or_so() -> None:
    assert [figure(value) for value in (12_345.6, 100, 12.34, 1.234, 0)] == ["12,346", "100", "12.3", "1.23", "0.00"]


def test_sides_take_turns_and_the_best_counts() -> None:
    turns: list[str] = []

    def side(name: str) -> float:
        turns.append(name)
        return len(turns)

    assert best({"a": lambda: side("a"), "b": lambda: side("b")}, 3) == {"a": 5, "b": 6}
    assert turns == ["a", "b"] * 3


def test_a_side_that_fails_is_left_out_with_all_it_said() -> None:
    answers = iter([1.0, None])
    assert interleaved({"a": lambda: next(answers), "b": lambda: 2.0}, 3) == {"b": [2.0, 2.0, 2.0]}


def test_percentiles() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert [percentile(samples, part) for part in (50, 99, 100)] == [50, 99, 100]
    assert percentile([7.0], 50) == 7


def test_the_summary_counts_targets_and_lists_those_missed() -> None:
    results = Results()
    results.lines = [
        Found("SQLite", Line("good", 2, 1, 1.0)),
        Found("SQLite", Line("bad", 1, 2, 1.0)),
        Found("SQLite", Line("no target", 1, 2, 0.0)),
    ]
    results.machine = {"cores": 2, "load": 0.1, "minutes": 1, "steal_percent": 0}
    said = results.summary().splitlines()
    assert said[:2] == ["1 of 2 targets met", "  MISSED SQLite: bad, against plain SQL: 0.50, wanted >= 1.00"]
    assert "no target" not in results.summary()
