"""Files of the daemon in a folder that handlers see: not one of them is there for a handler."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq.sandbox import ContextSettings
from hipq.sandbox.bubblewrap import covered
from hipq.sandbox.interpreters import cannot_hide
from tests.executors.running import ORDINARY, USERS, as_user

LOOK = {
    "python": "import os; return ['found', os.listdir(%r), [open(os.path.join(%r, n)).read() for n in os.listdir(%r)]]",
    "node": "const fs = require('fs'); return ['found', fs.readdirSync(%r), fs.existsSync(%r + '/daemon.db'), %r]",
    "php": "return ['found', array_diff(scandir(%r), ['.', '..']), file_exists(%r . '/daemon.db'), %r];",
    "shell": "ls -A %s; cat %s/daemon.db && exit 65; flock -n %s/token true && exit 66; status 200 '[\"found\",[]]'",
}  # fmt: skip
NAMES = ("daemon.db", "daemon.db-wal", "daemon.db-hipq", "hipq.toml", "token", "serve.log")


@pytest.fixture
def below_usr() -> Iterator[Path]:
    """A folder such as an image's WORKDIR."""
    if not os.access("/usr/src", os.W_OK):
        pytest.skip("this user cannot make a folder below /usr")
    folder = Path("/usr/src") / f"hipq-{uuid.uuid4().hex}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def fill(folder: Path, user: int) -> None:
    for name in NAMES:
        (folder / name).write_text("secret of others")
    (folder / "daemon.journal").mkdir(exist_ok=True)
    for path in (folder, *folder.iterdir()):
        os.chown(path, user, -1)
        path.chmod(0o755)  # were they for their owner alone, root's handlers would not get in anyway


@pytest.mark.parametrize("user", USERS, ids=lambda user: f"as {user}")
def test_a_folder_of_the_daemon_below_usr_is_empty_for_handlers(below_usr: Path, user: int) -> None:
    fill(below_usr, user)
    handlers = [(lang, body % ((str(below_usr),) * 3)) for lang, body in LOOK.items()]
    given = [one for one in handlers if one[0] in ("python", "shell") or user != ORDINARY]
    found = as_user(user, *given, hidden=[str(below_usr), str(below_usr / "daemon.journal")])
    for status, data, error in found.reports:
        assert status == 200, error
        assert json.loads(data)[1] in ([], {}), data
    opened = f"import fcntl; fcntl.flock(open('{below_usr}/daemon.db-hipq'), fcntl.LOCK_EX)"
    made = f"open('{below_usr}/mine', 'w')"
    for status, _, error in as_user(user, ("python", opened), ("python", made), hidden=[str(below_usr)]).reports:
        assert status == 500
        assert "FileNotFoundError" in error or "Read-only" in error or "PermissionError" in error


@pytest.mark.parametrize("user", USERS, ids=lambda user: f"as {user}")
def test_a_folder_in_an_interpreter_s_own_is_covered_where_that_is_inside(open_to_all: Path, user: int) -> None:
    program, folder = open_to_all / "tree" / "bin" / "bash", open_to_all / "tree" / "lib" / "app"
    program.parent.mkdir(parents=True)
    folder.mkdir(parents=True)
    shutil.copy(os.path.realpath(shutil.which("bash") or "/bin/sh"), program)
    fill(folder, user)
    body = 'status 200 "$(ls -A /interpreter/lib/app | wc -l)"'
    interpreters = {"shell": str(program)}
    seen = as_user(user, ("shell", body), interpreters=interpreters)
    assert seen.reports[0][:2] == (200, "7"), "the test would show nothing"
    found = as_user(user, ("shell", body), interpreters=interpreters, hidden=[str(folder)])
    assert found.reports[0][:2] == (200, "0")


def test_of_folders_in_each_other_the_outer_one_is_covered_and_only_where_it_is_seen(tmp_path: Path) -> None:
    outer, inner = tmp_path / "tree" / "app", tmp_path / "tree" / "app" / "journal"
    inner.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(outer)
    binds = {str(tmp_path / "tree"): "/inside", "/usr": "/usr"}
    assert covered([str(inner), str(link), str(tmp_path)], binds) == ["/inside/app"]
    assert covered(["/", "/home", str(tmp_path)], binds) == []


def test_what_interpreters_need_cannot_be_hidden(tmp_path: Path) -> None:
    libc = next(path for path in Path("/usr/lib").rglob("libc.so.6"))
    for folder in ("/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/lib", "/bin", "/lib", str(libc.parent)):
        if os.path.isdir(folder):
            assert cannot_hide(folder, ContextSettings()), folder
            assert not cannot_hide(folder, ContextSettings(trust=True))
    for folder in ("/", "/home", "/var/lib/hipq", "/usr/src/app", "/usr/local/lib/app", "/opt/app", str(tmp_path)):
        assert not cannot_hide(folder, ContextSettings()), folder
