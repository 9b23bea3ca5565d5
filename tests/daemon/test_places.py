"""Whatever a daemon uses is hidden from its handlers, or the daemon does not start and says what to move."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.daemon.hidden_paths import hidden
from hipq.errors import Invalid
from hipq.sandbox import ContextSettings
from tests import processes
from tests.daemon.working import add, daemon, ended, python

LOOK = """
import os
folder = {0!r}
return ['seen', os.path.isdir(folder) and os.listdir(folder), 0]
"""


@pytest.fixture
def below_usr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder such as an image's WORKDIR, which is the current one."""
    if not os.access("/usr/src", os.W_OK):
        pytest.skip("this user cannot make a folder below /usr")
    folder = Path("/usr/src") / f"hipq-{uuid.uuid4().hex}"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    monkeypatch.undo()
    shutil.rmtree(folder)


def test_a_daemon_below_usr_shows_none_of_its_files_to_a_handler(below_usr: Path) -> None:
    (below_usr / "hipq.toml").write_text("")
    with daemon(below_usr, job_log=str(below_usr / "jobs.jsonl")) as served:
        python(served, "look", LOOK.format(str(below_usr)))
        (job_id,) = add(served, "look", b"x")
        row = ended(served, job_id)
        assert {path.name for path in below_usr.iterdir()} >= {"daemon.db", "journal", "jobs.jsonl", "hipq.toml"}
    assert row.exitcode == 200
    assert json.loads(json.loads(row.result)) == ["seen", [], 0]


def test_every_folder_it_uses_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("here/below", "database", "logs", "temporary")
    here, database, logs, temporary = (tmp_path / name for name in names)
    for folder in (here, database, logs, temporary):
        folder.mkdir(parents=True)
    (tmp_path / "here" / "hipq.toml").write_text("")
    (tmp_path / "link.db").symlink_to(database / "daemon.db")
    monkeypatch.chdir(here)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    found = hidden(ContextSettings(), f"sqlite:///{tmp_path}/link.db", "journal", str(logs / "jobs.jsonl"))
    wanted = (database, here / "journal", logs, tmp_path / "here", here, temporary)
    assert {str(folder) for folder in wanted} <= set(found)
    assert str(database) not in hidden(ContextSettings(), "postgresql://ann@localhost/hipq", "journal", "")


@pytest.mark.parametrize(
    ("url", "journal", "job_log", "what"),
    [
        ("sqlite:////usr/local/daemon.db", "journal", "", "the daemon's database, as /usr/local is"),
        ("sqlite://", "/usr/lib", "", "the daemon's journal, as /usr/lib is"),
        ("sqlite://", "journal", "/usr/bin/jobs.jsonl", "the log of jobs, as /usr/bin is"),
    ],
)
def test_what_cannot_be_hidden_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, journal: str, job_log: str, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid, match=f"^handlers would see {what} also where their interpreters"):
        hidden(ContextSettings(), url, journal, job_log)
    assert hidden(ContextSettings(trust=True), url, journal, job_log)


def test_a_daemon_that_is_started_in_usr_refuses_in_one_sentence_and_makes_nothing() -> None:
    before = sorted(os.listdir("/usr"))
    command = [sys.executable, "-m", "hipq", "serve", "--port", "0", "--db", "postgresql://nobody@127.0.0.1:1/none"]
    ran = processes.run(command, cwd="/usr", capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert "hipq: handlers would see the daemon's working directory, as /usr is also where" in ran.stderr
    assert sorted(os.listdir("/usr")) == before


def test_no_tokens_and_the_network_for_handlers_are_refused_together(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hipq", "serve", "--port", "0", "--no-tokens", "--handler-network"]
    ran = processes.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith("hipq: --no-tokens with --handler-network lets every handler do everything")
    assert list(tmp_path.iterdir()) == []
