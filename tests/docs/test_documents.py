"""The papers of the project: their links lead somewhere, and what is generated is what the code says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hipq.job.states import document

ROOT = Path(__file__).parents[2]
PAPERS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_resolves(paper: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", paper.read_text(), flags=re.DOTALL))
    for link in links:
        target, _, fragment = link.partition("#")
        if re.match(r"https?:", link):
            continue
        path = (paper.parent / target).resolve() if target else paper
        assert path.is_relative_to(ROOT), link
        assert path.exists(), link
        if fragment:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.MULTILINE)
            assert fragment in map(anchor, headings), link


def test_states_md_is_what_the_table_says() -> None:
    assert (ROOT / "docs/states.md").read_text() == document(), "run `make docs`"


def test_the_papers_a_project_has_are_there() -> None:
    assert "MIT License" in (ROOT / "LICENSE").read_text()
    assert len((ROOT / "README.md").read_text().splitlines()) < 200
    assert "## 0.1.0" in (ROOT / "CHANGELOG.md").read_text()
    assert (ROOT / "CONTRIBUTING.md").exists()


def test_every_make_target_the_papers_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {name for paper in PAPERS for name in re.findall(r"(?:^|`)make ([a-z-]+)", paper.read_text(), flags=re.M)}
    assert {"demo", "test"} <= named
    assert named <= targets


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci/run"
    assert "make test" in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
