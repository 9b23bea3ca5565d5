"""docs/start.md, followed to the letter: what is typed into two terminals, and what the dashboard shows meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dashboard.serving import logged_in
from tests.docs.test_readme import ROOT, blocks, console, environment, run
from tests.servers import free_port

PAGE = "docs/start.md"
MINUTES = 5
FIRST_TERMINAL = {"enqueue": "asking the bank for 5 with reference order-17", "answer": " ok queue=orders job=65537"}
"""What is seen there after a command in the second."""


@contextmanager
def first_terminal(folder: Path, known: dict[str, str]) -> Iterator[str]:
    """`hipq dev` runs until the block ends; the URL that it printed. Its ports are free ones."""
    words = ["hipq", "dev", "shop:app", "--port", str(free_port()), "--dashboard-port", str(free_port())]
    with (folder / "terminal").open("wb") as output:
        process = subprocess.Popen(words, cwd=folder, env=known, stdout=output, stderr=output, start_new_session=True)
    try:
        yield said(folder, r"^dashboard: (http://\S+)$")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, (folder / "terminal").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def said(folder: Path, pattern: str, seconds: float = 60.0) -> str:
    """What the first terminal says, once it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := re.search(pattern, (folder / "terminal").read_text(), re.MULTILINE):
            return found[found.re.groups]
        time.sleep(0.05)
    raise AssertionError(f"not said: {pattern}\n{(folder / 'terminal').read_text()}")


def follow(folder: Path, known: dict[str, str]) -> None:
    texts = iter(blocks(PAGE))
    assert next(texts)[0] == "sh"
    language, program = next(texts)
    assert program.startswith("# shop.py\n")
    (folder / "shop.py").write_text(program)
    assert next(texts)[1].startswith("$ hipq dev shop:app\n")
    with first_terminal(folder, known) as url:
        said(folder, "engine started")
        said(folder, r"^dashboard +\| (dashboard: )")
        assert "orders" in logged_in(url)
        for language, block in texts:
            if language != "console":
                break
            for typed in re.split(r"^(?=\$ )", block, flags=re.MULTILINE)[1:]:
                console(typed, folder)
                if seen := FIRST_TERMINAL.get(typed.split()[2]):
                    said(folder, seen)
    assert (language, block[:5]) == ("python", "from ")
    assert run([str(Path(known["PATH"].split(os.pathsep)[0], "python")), "-c", block], folder) == "buffered\n"
    assert next(texts, None) is None


def test_a_first_answer(tmp_path: Path) -> None:
    follow(tmp_path, environment())


@pytest.mark.long
def test_a_first_answer_in_a_new_environment_within_five_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    (_, block) = blocks(PAGE)[0]
    script = block.replace("/path/to/hipq", str(ROOT)).replace("python3 ", f"{sys.executable} ")
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, timeout=MINUTES * 60)
    monkeypatch.setenv("PATH", str(tmp_path / "shop/bin"), prepend=os.pathsep)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "shop/bin/python"))
    follow(tmp_path / "shop", environment())
    assert time.monotonic() - began < MINUTES * 60
