"""docs/django.md: its options are those of the code, and so is what the worker takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hipq.cli.worker import worker
from hipq.engine.timetable import LEASE
from tests.docs.test_readme import ROOT, blocks, environment

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
    (line,) = re.findall(r"`manage.py hipq_worker (\[.*\])`", TEXT)
    ours = {"--backend", "-q", "-c", "--processes", "--lease", "--until-empty", "--log-format"}
    assert set(re.findall(r"--?[\w-]+", line)) == ours
    assert ours - {"--backend"} <= {name for option in worker.params for name in (*option.opts, *option.secondary_opts)}
    assert f"--lease {LEASE:g}" in line


def test_its_fixture_for_pytest_django(tmp_path: Path) -> None:
    pytest.importorskip("pytest_django")
    for language, block in blocks("docs/django.md"):
        if language == "python" and (name := re.match(r"# (\w+\.py)\n", block)):
            (tmp_path / name[1]).write_text(block)
    twice = '\n\ndef test_again(world):\n    world.assert_empty()\n    buy("Emil", "order-19")\n'
    with (tmp_path / "test_charges.py").open("a") as file:
        file.write(twice + twice.replace("again", "once_more"))
    fixture, found = (tmp_path / "conftest.py"), environment() | {"DJANGO_SETTINGS_MODULE": "shop_settings"}
    for database in ("db", "transactional_db"):
        fixture.write_text(fixture.read_text().replace("world(db", f"world({database}"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_charges.py", "test_buying.py"]
        said = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, timeout=180).stdout
        assert "5 passed" in said, said
