"""docs/testing.md: its application, its tests and its examples, run in a new folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.testing import Harness
from tests.docs.test_readme import blocks, console, run
from tests.servers import clean_database

GUIDE = "docs/testing.md"


@pytest.fixture
def url() -> Iterator[str]:
    with clean_database() as found:
        yield found


def test_its_tests_and_examples_run(tmp_path: Path, url: str) -> None:
    commands = programs = 0
    for language, block in blocks(GUIDE):
        if language == "console":
            commands += console(block, tmp_path)
        elif name := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / name[1]).write_text(block.replace("postgresql://postgres@localhost/shop_test", url))
        else:
            assert language == "python"
            run([sys.executable, "-c", block], tmp_path)
            programs += 1
    assert (commands, programs) == (2, 3)
    assert not (tmp_path / "shop.db").exists()


def test_it_tells_of_every_method() -> None:
    text = (Path(__file__).parents[2] / GUIDE).read_text()
    methods = {name for name in dir(Harness) if not name.startswith("_")} - {"close"}
    told = set(re.findall(r"\w+", text))
    assert methods <= told, methods - told
