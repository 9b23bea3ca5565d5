"""docs/configuration.md: no variable is missing, and its command prints what it says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_readme import ROOT, blocks, console

PAGE = "docs/configuration.md"
TEXT = (ROOT / PAGE).read_text()


def test_no_variable_is_missing() -> None:
    sources = [*(ROOT / "src/hipq").rglob("*.py"), *(ROOT / "src/hipq").rglob("*.sh")]
    read = {name for file in sources for name in re.findall(r"(?<!_)HIPQ_[A-Z_]*[A-Z]", file.read_text())}
    read -= {"HIPQ_DASHBOARD"}  # a setting of Django's
    assert read - set(re.findall(r"HIPQ_[A-Z_]*[A-Z]", TEXT)) == set()


def test_its_command(tmp_path: Path) -> None:
    assert sum(console(block, tmp_path) for language, block in blocks(PAGE) if language == "console") == 1
