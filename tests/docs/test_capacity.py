"""docs/capacity.md: its figures are those that were measured."""

from __future__ import annotations

import json
import re

from tests.docs.test_readme import ROOT

TEXT = (ROOT / "docs/capacity.md").read_text()


def test_bytes_are_those_of_the_measurement() -> None:
    kept = json.loads((ROOT / "docs/size.json").read_text())
    part = TEXT.partition("## Bytes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\|.*\| ([\d,]+) \| ([\d,]+) \|$", part, flags=re.MULTILINE)
    told = [tuple(int(one.replace(",", "")) for one in row) for row in rows]
    assert told == [
        (kept["sqlite"][payload][kind], kept["postgresql"][payload][kind])
        for payload in ("100", "1000", "10000")
        for kind in ("live", "final", "waiting", "answered")
    ]


def test_rates_are_those_of_the_benchmarks() -> None:
    part = TEXT.partition("## Jobs a second")[2].partition("\n## ")[0]
    measured = (ROOT / "docs/benchmarks.md").read_text() + (ROOT / "docs/daemon-bench.md").read_text()
    rates = re.findall(r"\| (\d+,\d+) (?=\|)", part)
    assert len(rates) > 10
    assert [rate for rate in rates if f"| {rate} |" not in measured] == []
