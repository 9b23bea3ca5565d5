"""The report that is committed is what its results say."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.lines import Line
from bench.peers.company import Described, Failure
from bench.picture import picture
from bench.report import markdown, write
from bench.results import Found, Results

from bench import growth_page, multiples

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "docs/benchmarks.json"
ARENA = ROOT / "docs/arena.json"
GROWTH = ROOT / "docs/growth.json"


def test_the_report_is_what_its_results_say() -> None:
    results = Results.load(KEPT)
    assert (ROOT / "docs/benchmarks.md").read_text() == markdown(results, ARENA), "run python -m bench.report"
    assert (ROOT / "docs/benchmarks.svg").read_text() == picture(results), "run python -m bench.report"


def test_the_page_about_growth_is_what_its_results_say() -> None:
    kept = growth_page.load(GROWTH)
    assert {curve.store for curve in kept.curves} == {"SQLite", "PostgreSQL"}
    assert {step.phase for step in kept.neighbour} == set(growth_page.PHASES)
    assert GROWTH.with_suffix(".md").read_text() == growth_page.markdown(kept), "run python -m bench.growth_page"
    assert GROWTH.with_suffix(".svg").read_text() == multiples.picture(kept.curves), "run python -m bench.growth_page"


def test_each_curve_is_flat_or_explained() -> None:
    kept = growth_page.load(GROWTH)
    bad = {curve.curve for curve in kept.curves if curve.part < growth_page.FLAT and curve.x != growth_page.WORKERS}
    assert bad <= growth_page.WHY.keys()


@pytest.mark.parametrize("kept", [KEPT, GROWTH], ids=["benchmarks", "growth"])
@pytest.mark.parametrize("suffix", [".json", ".md", ".svg"])
def test_it_says_nothing_of_the_machine_it_was_made_on_that_others_need_not_know(kept: Path, suffix: str) -> None:
    text = kept.with_suffix(suffix).read_text()
    assert str(ROOT) not in text
    assert not re.search(r"https?://(?!www\.w3\.org/)", text)


def results() -> Results:
    found = Results()
    found.lines = [
        Found("PostgreSQL", Line("enqueue one at a time", 2_000, 2_500, 0.8, verb="enqueue")),
        Found("PostgreSQL", Line("enqueue one at a time", 2_000, 1_000, 1.5, against="rival", verb="enqueue")),
        Found("PostgreSQL", Line("enqueue one at a time", 2_000, 5_000, 0.0, against="rival (Redis)", verb="enqueue")),
        Found("PostgreSQL", Line("drain", 2_000, 5_000, 0.8)),
    ]
    found.peers = [
        Described("rival", "PostgreSQL", "commit, fsync", "1.2", "batch 500"),
        Described("rival", "Redis", "no", "1.2", "<prefetch 7>"),
    ]
    found.failures = [Failure("absent", "SQLite", "does not install: no wheel")]
    found.versions = {"hipq": "0.1.0", "PostgreSQL": "15"}
    found.machine = {
        "date": "1 May 2026", "cores": 2, "system": "Linux", "load": 0.0, "minutes": 1.0, "steal_percent": 0.0,
        "quick": False,
    }  # fmt: skip
    return found


def test_targets_met_and_missed_peers_of_each_store_and_failures_are_all_there(tmp_path: Path) -> None:
    text = markdown(results(), tmp_path / "arena.json")
    assert "## Targets: 2 of 3 met" in text
    assert "| drain | 2,000 | 5,000 | jobs/s | plain SQL | 0.40 | ≥ 0.80 | **no** |" in text
    assert "| rival | 1.2 | commit, fsync | 1,000 |  |  |  |" in text
    assert "| **hipq (PostgreSQL)** | 0.1.0 | commit, fsync | 2,000 |  |  |  |\n| rival | 1.2 | no | 5,000 |" in text
    assert "- absent (SQLite): does not install: no wheel" in text


def test_the_picture_is_well_formed_and_has_a_bar_for_everybody() -> None:
    drawn = ElementTree.fromstring(picture(results()))
    bars = [bar for bar in drawn.iter("{http://www.w3.org/2000/svg}rect") if "bar" in bar.attrib["class"]]
    assert len(bars) == 5  # hipq, plain SQL and rival, and beside Redis hipq and rival
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths == sorted(widths[:3], reverse=True) + sorted(widths[3:], reverse=True)


def test_what_is_kept_is_what_was_found(tmp_path: Path) -> None:
    results().save(tmp_path / "found.json")
    write(tmp_path / "found.json")
    assert (tmp_path / "found.md").read_text() == markdown(results(), tmp_path / "arena.json")
