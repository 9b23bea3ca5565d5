"""Nobody but its owner reads or locks a database's files, whatever the umask; a group does, if it is named."""

from __future__ import annotations

import grp
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hipq import Hipq, Invalid
from hipq.stores.sqlite import connection
from hipq.stores.sqlite.moving import only_mover

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys, tempfile
uid, gid, umask, path, key = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3], 8), sys.argv[4], sys.argv[5]
from hipq import Hipq
from hipq.stores.sqlite import connection, store
connection.SAFE_VERSION = (99, 0, 0)
with tempfile.TemporaryDirectory() as there:  # all is loaded: the other user need not be able to read it
    group = os.environ.pop("HIPQ_GROUP", "")
    app = Hipq("warm", f"sqlite:///{there}/warm.db")
    app.queue("orders").enqueue("work", {}, key="key")
    app.close()
    if group:
        os.environ["HIPQ_GROUP"] = group
if uid:
    os.setgroups([int(os.environ["HIPQ_GROUP"])] if "HIPQ_GROUP" in os.environ else [])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
os.umask(umask)
app = Hipq("shop", f"sqlite:///{path}")
queue = app.queue("orders")
queue.enqueue("work", {"secret": "payload"}, key=key)
print("made", flush=True)
sys.stdin.readline()
app.close()
"""


def program(path: Path, user: int = 0, umask: str = "000", **environment: str) -> subprocess.Popen[str]:
    """Another program that has the database open, as some user."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(user), str(user), umask, str(path), f"key-{user}"], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **environment},
    )  # fmt: skip


def modes(path: Path) -> dict[str, str]:
    found = sorted(path.parent.glob(f"{path.name}*"))
    return {one.name.removeprefix(path.name): f"{stat.S_IMODE(one.stat().st_mode):o}" for one in found}


def ended(one: subprocess.Popen[str]) -> None:
    _, wrong = one.communicate("\n", timeout=60)
    assert one.returncode == 0, wrong


@pytest.mark.parametrize("umask", ["000", "022", "277"])
@pytest.mark.parametrize("user", [0, 65534] if os.geteuid() == 0 else [0], ids=lambda user: f"as {user}")
def test_a_new_database_is_its_owner_s_alone_whatever_the_umask(open_to_all: Path, user: int, umask: str) -> None:
    path = open_to_all / "shop.db"
    one = program(path, user, umask)
    assert one.stdout
    try:
        assert one.stdout.readline() == "made\n"
        assert modes(path) == {"": "600", "-hipq": "600", "-shm": "600", "-wal": "600"}
    finally:
        ended(one)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two other users")
def test_another_user_reads_nothing_and_cannot_hold_the_lock_file(open_to_all: Path) -> None:
    path = open_to_all / "shop.db"
    one = program(path)
    assert one.stdout
    assert one.stdout.readline() == "made\n"
    body = "import os, sys\nos.setuid(65534)\nfor s in ('', '-wal', '-shm', '-hipq'):\n  try: open(sys.argv[1] + s)\n"
    body += "  except PermissionError: print('no', end=' ')"
    try:
        ran = subprocess.run([sys.executable, "-c", body, str(path)], capture_output=True, text=True, check=True)
        assert ran.stdout == "no no no no "
    finally:
        ended(one)


def other_group() -> str:
    """One that this user may give files to, and that is not the usual one of new files."""
    mine = [group for group in os.getgroups() if group != os.getegid()]
    if os.geteuid() == 0:
        return str(next(one.gr_gid for one in grp.getgrall() if one.gr_gid not in (0, 65534)))
    if not mine:
        pytest.skip("this user is in one group only")
    return str(mine[0])


def test_a_group_that_is_named_may_read_and_write(open_to_all: Path) -> None:
    group = other_group()
    path = open_to_all / "shop.db"
    users = [1001, 1002] if os.geteuid() == 0 else [0]
    running = []
    for user in users:  # each opens the files that another has made
        one = program(path, user, "077", HIPQ_GROUP=group)
        running.append(one)
        assert one.stdout
        assert one.stderr
        assert one.stdout.readline() == "made\n", one.stderr.read()
        assert set(modes(path).values()) == {"660"}
        assert {str(file.stat().st_gid) for file in path.parent.glob("shop.db*")} == {group}
    for one in running:
        ended(one)


def test_a_group_that_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_GROUP", "no such group")
    with pytest.raises(Invalid, match=r"\$HIPQ_GROUP: there is no group 'no such group' on this machine"):
        Hipq("shop", f"sqlite:///{tmp_path}/shop.db").migrate()
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_is_there_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SAFE_VERSION", (99, 0, 0))
    path = tmp_path / "shop.db"
    path.touch()
    path.chmod(0o640)
    app = Hipq("shop", f"sqlite:///{path}")
    app.migrate()
    assert modes(path) == {"": "640", "-hipq": "600", "-shm": "640", "-wal": "640"}
    app.close()


def test_the_lock_of_a_move_is_its_owner_s_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with only_mover(str(tmp_path / "shop.db")):
            assert modes(tmp_path / "shop.db") == {"-hipq-move": "600"}
    finally:
        os.umask(before)


def test_a_second_connection_s_opening_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """A process that closes any descriptor of a file frees all its locks on it."""
    path = tmp_path / "shop.db"
    first = Hipq("shop", f"sqlite:///{path}")
    first.migrate()
    held = f":{path.stat().st_ino} "
    assert held in Path("/proc/locks").read_text()
    second = Hipq("shop", f"sqlite:///{path}")
    second.migrate()
    assert held in Path("/proc/locks").read_text()
    second.close()
    first.close()
