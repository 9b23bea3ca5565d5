"""docs/django.md: its options are those of the code, and so is what the worker takes."""

from __future__ import annotations

import re

from hipq.engine.timetable import LEASE
from tests.docs.test_readme import ROOT

TEXT = (ROOT / "docs/django.md").read_text()


def options(backend: str) -> set[str]:
    table = TEXT[TEXT.index(f"| `OPTIONS` of `{backend}`") :].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def known(file: str) -> set[str]:
    """As the module has them; it cannot be imported without Django's settings."""
    text = (ROOT / "src/hipq/django" / file).read_text()
    lists = re.findall(r"^_(?:PLACES|KNOWN|WAITER): Final = \(([^)]*)\)", text, flags=re.MULTILINE)
    return {name for one in lists for name in re.findall(r'"(\w+)"', one)}


def test_it_has_all_options_and_no_others() -> None:
    assert options("HipqBackend") == known("options.py")
    assert options("WaiterBackend") == known("waiter_backend.py")


def test_what_the_worker_takes() -> None:
    command = (ROOT / "src/hipq/django/management/commands/hipq_worker.py").read_text()
    (line,) = re.findall(r"`manage.py hipq_worker (\[.*\])`", TEXT)
    assert set(re.findall(r"--?[\w-]+", line)) <= set(re.findall(r'"(--?[\w-]+)"', command))
    assert f"--lease {LEASE:g}" in line
