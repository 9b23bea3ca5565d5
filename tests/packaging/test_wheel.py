"""What users install: the wheel, in an environment that has nothing but what it asks for."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

from hipq.version import __version__
from tests.pythons import pythons

pytestmark = pytest.mark.long

ROOT: Final = Path(__file__).parents[2]
SMOKE: Final = Path(__file__).parent / "smoke.py"
BASE: Final = {"click", "cronsim", "hipq", "msgspec", "tzdata"}
"""What is there after `pip install hipq`. Whoever adds to it adds to every installation."""
MOST_BYTES: Final = 1_500_000
"""Of the wheel."""
OTHERS: Final = {"serve": "daemon", "dashboard": "dashboard", "callbacks": "callbacks"}
"""Commands that need an extra, and which."""


def said(*command: object, folder: Path = ROOT) -> str:
    """What a program prints, in which nothing says where hipq's source is."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HIPQ_", "PYTHON", "VIRTUAL_"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` builds of a commit that has all that lies about here."""
    source = tmp_path_factory.mktemp("source")
    there = said("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")[:-1]
    for name in filter(lambda name: (ROOT / name).exists(), there):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all of it")):
        said("git", "-c", "user.name=hipq", "-c", "user.email=hipq", *words, folder=source)
    os.symlink(sys.prefix, source / ".venv")
    said(".ci/dist", folder=source)  # it fails if two builds differ
    return source / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return dist / f"hipq-{__version__}-py3-none-any.whl"


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder.parent).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_all_of_it_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        every = set(opened.namelist())
    names = {name for name in every if ".dist-info/" not in name}
    assert names == files(ROOT / "src" / "hipq")
    needed = ("bootstrap.py", "bootstrap.cjs", "bootstrap.php", "bootstrap.sh", "py.typed")
    for suffix in (*needed, ".sql", ".html", ".css", "uPlot.iife.min.js"):
        assert [name for name in names if name.endswith(suffix)], suffix
    assert wheel.stat().st_size < MOST_BYTES


def test_its_metadata_say_what_it_is_and_under_which_licences(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        info = f"hipq-{__version__}.dist-info"
        metadata = Parser().parsestr(opened.read(f"{info}/METADATA").decode())
        licences = [opened.read(f"{info}/licenses/{name}").decode() for name in metadata.get_all("License-File", [])]
    assert (metadata["Version"], metadata["License-Expression"]) == (__version__, "MIT")
    assert ["hipq authors" in licences[0], "uPlot" in licences[1]] == [True, True]
    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {version}" in metadata.get_all("Classifier", [])


def test_the_sdist_has_what_the_wheel_is_built_from_and_no_tests(dist: Path) -> None:
    with tarfile.open(dist / f"hipq-{__version__}.tar.gz") as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {f"src/{name}" for name in files(ROOT / "src" / "hipq")} <= names
    assert {"LICENSE", "CHANGELOG.md", "SECURITY.md", "pyproject.toml", "deploy/alerts.yml"} <= names
    assert not [name for name in names if name.startswith(("tests", "bench", ".git/", ".venv"))]


def test_it_runs_where_nothing_but_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    for version, python in pythons().items():
        (tmp_path / version).mkdir()
        runs(wheel, tmp_path / version, version, python)


def runs(wheel: Path, tmp_path: Path, version: str, made_by: Path) -> None:
    python = tmp_path / "venv/bin/python"
    said(made_by, "-m", "venv", "--without-pip", tmp_path / "venv")
    said(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
    there = json.loads(said(sys.executable, "-m", "pip", "--python", python, "list", "--format=json"))
    assert {package["name"] for package in there} == BASE
    shutil.copy(SMOKE, tmp_path)
    assert f"on Python {version}: " in said(python, "smoke.py", folder=tmp_path)
    for command, extra in OTHERS.items():
        done = subprocess.run(
            [tmp_path / "venv/bin/hipq", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )
        assert (done.returncode, f"pip install 'hipq[{extra}]'" in done.stderr) == (2, True), done.stderr
