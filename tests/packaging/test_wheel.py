"""What users install: the wheel, in an environment that has nothing but what it asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from hipq import Hipq

app = Hipq("shop")
orders = app.queue("orders")

@orders.job()
def charge(job):
    return {"charged": job.data["amount"]}

if __name__ == "__main__":
    id = charge.enqueue({"amount": 5})
    app.run(until_empty=True)
    print(app.result(id))
"""


def said(*command: object, folder: Path = ROOT) -> str:
    """What a program prints, in which nothing says where hipq's source is."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HIPQ_", "PYTHON", "VIRTUAL_"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=clean, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    said(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (found,) = folder.glob("hipq-*.whl")
    return found


def files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder.parent).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


@pytest.mark.long
def test_all_of_it_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert names == files(ROOT / "src" / "hipq")
    for suffix in (".sql", "bootstrap.py", "bootstrap.cjs", "bootstrap.php", "bootstrap.sh", "py.typed"):
        assert [name for name in names if name.endswith(suffix)], suffix


@pytest.mark.long
def test_it_runs_where_nothing_but_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    said(sys.executable, "-m", "venv", tmp_path / "venv")
    program, python = tmp_path / "venv/bin/hipq", tmp_path / "venv/bin/python"
    said(python, "-m", "pip", "install", "--quiet", wheel)
    there = said(python, "-m", "pip", "list", "--format=freeze").lower()
    assert "hipq==" in there
    for other in ("pytest", "psycopg", "uvicorn", "starlette", "httpx"):
        assert other not in there, "this is not what most users have"
    assert "A durable job queue" in said(program, "--help")
    where = said(python, "-c", "import hipq; print(hipq.__file__)", folder=tmp_path)
    assert where.startswith(str(tmp_path)), "not the source that lies about here"
    (tmp_path / "shop.py").write_text(PROGRAM)
    assert said(python, "shop.py", folder=tmp_path).strip().endswith("{'charged': 5}")
    (job,) = json.loads(said(program, "job", "list", "shop:app", "--json", folder=tmp_path))
    assert (job["state"], job["code"]) == ("final", "ok")
    for words in (("serve", "--help"), ("journal", "--help"), ("worker", "--help")):
        assert "Usage: hipq" in said(program, *words)
    done = subprocess.run([program, "serve"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, "pip install 'hipq[daemon]'" in done.stderr) == (2, True), done.stderr
