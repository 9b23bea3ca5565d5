"""What Django documents for task backends, on each database; the tests themselves are in `project/lab/behaviour_*.py`,
for Django's own runner, so that they run where there is no pytest: with Django 6, on a Python that has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.django.lab import Lab, mysql, postgres, sqlite
from tests.mariadb_server import mariadb_url
from tests.servers import clean_database, postgres_url

ROOT = Path(__file__).parents[2]


def database(kind: str, folder: Path) -> dict[str, object]:
    if kind == "postgresql":
        return postgres(postgres_url(), TEST={"NAME": f"hipq_test_{uuid4().hex}"})
    if kind == "mariadb":
        return mysql(mariadb_url(), TEST={"NAME": f"hipq_test_{uuid4().hex}"})
    return sqlite(folder / "lab.db", TEST={"NAME": ":memory:" if kind == "memory" else str(folder / "test.db")})


def behaves(kind: str, folder: Path, python: str = sys.executable) -> str:
    """Run them; they say how many there were. In memory no worker can find a task, so none is tested there."""
    lab = Lab(folder, database(kind, folder), python=python)
    which = "behaviour_[as]*.py" if kind == "memory" else "behaviour_*.py"
    said = lab.manage("test", "lab", "--noinput", "--pattern", which)
    ran = re.search(r"^Ran (\d+) tests in .*\n\nOK", said, re.MULTILINE)
    assert ran, said
    assert int(ran[1]) >= (26 if kind == "memory" else 50)
    assert "System check identified no issues" in said
    return said


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql", "mariadb"])
def test_what_django_documents_for_backends(kind: str, tmp_path: Path) -> None:
    behaves(kind, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
def test_the_same_on_django_6(kind: str, tmp_path: Path) -> None:
    python = django_6()
    version = subprocess.check_output([python, "-c", "import django; print(django.VERSION >= (6,))"], text=True)
    assert version.strip() == "True"
    behaves(kind, tmp_path, python=python)


def django_6() -> str:
    """A Python with Django 6 and without django-tasks, in an environment that is made once, in `.bench`."""
    python = newer_python()
    if python is None:
        pytest.skip("there is no Python 3.12 or later here, which Django 6 needs")
    version = subprocess.check_output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True)
    folder = ROOT / ".bench" / f"django-6-python-{version.strip()}"
    found = folder / "bin" / "python"
    done = folder / "installed-with-dashboard"
    if not done.exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        quiet = ["--quiet", "--disable-pip-version-check"]
        wanted = ["-e", f"{ROOT}[postgres,django,dashboard]", "django>=6"]
        subprocess.run([found, "-m", "pip", "install", *quiet, *wanted], check=True)
        done.touch()
    return str(found)


def newer_python() -> str | None:
    """The newest one here, whether it is in the path or pyenv has it."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    chosen = [*map(Path, os.environ.get("PATH", "").split(os.pathsep)), *sorted(pyenv.glob("*/bin"), reverse=True)]
    for minor in (14, 13, 12):
        for location in chosen:
            python = location / f"python3.{minor}"
            if python.exists() and subprocess.run([python, "-c", "import venv"], capture_output=True).returncode == 0:
                return str(python)
    return None


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
def test_jobs_of_an_application_of_yours(kind: str, tmp_path: Path) -> None:
    lab = Lab(tmp_path, database(kind, tmp_path))
    said = lab.manage("test", "lab", "--noinput", "--pattern", "own_jobs.py", "--settings", "lab.own_settings")
    assert re.search(r"^Ran 10 tests in .*\n\nOK", said, re.MULTILINE), said


@pytest.mark.parametrize("apart", ["sqlite", "postgresql"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_jobs_in_the_admin(kind: str, apart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with clean_database() as url:
        monkeypatch.setenv("LAB_URL", url if apart == "postgresql" else f"sqlite:///{tmp_path}/apart.db")
        manages_jobs(kind, tmp_path)


@pytest.mark.long
def test_jobs_in_the_admin_of_django_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_URL", f"sqlite:///{tmp_path}/apart.db")
    manages_jobs("sqlite", tmp_path, django_6())


@pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mariadb"])
def test_the_dashboard_in_a_project(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_URL", f"sqlite:///{tmp_path}/apart.db")
    manages_jobs(kind, tmp_path, tests="dashboard_pages.py", count=7)


@pytest.mark.long
def test_the_dashboard_in_a_project_of_django_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_URL", f"sqlite:///{tmp_path}/apart.db")
    manages_jobs("sqlite", tmp_path, django_6(), tests="dashboard_pages.py", count=7)


def manages_jobs(
    kind: str, folder: Path, python: str = sys.executable, *, tests: str = "admin_jobs.py", count: int = 16
) -> None:
    lab = Lab(folder, database(kind, folder), python=python)
    words = ["--noinput", "--pattern", tests, "--settings", "lab.admin_settings"]
    said = lab.manage("test", "lab", *words)
    assert re.search(rf"^Ran {count} tests in .*\n\nOK$", said, re.MULTILINE), said
