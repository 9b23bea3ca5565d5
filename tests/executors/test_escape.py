"""Handlers that try to get out of the sandbox: each attempt is denied, as root and as an ordinary user."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import hipq
from hipq.sandbox import ContextPool, JobReport
from tests.executors.running import handler, pool, run

CANARY = f"canary-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def boxed() -> Iterator[ContextPool]:
    """With a secret in the daemon's environment from before it was made."""
    os.environ["HIPQ_TEST_SECRET"] = CANARY
    try:
        with pool(processes=32) as contexts:
            yield contexts
    finally:
        del os.environ["HIPQ_TEST_SECRET"]


def python(boxed: ContextPool, body: str) -> JobReport:
    return run(boxed, handler("python", body, eid="escape")).only


def denied(boxed: ContextPool, body: str, *errors: str) -> None:
    """It raises, and for the reason it should: else a mistake in a test would look like a wall."""
    report = python(boxed, body)
    assert report.status == 500, report
    assert any(error in report.error for error in errors), report.error


GONE, FORBIDDEN, READ_ONLY = "FileNotFoundError", "PermissionError", "Read-only file system"


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/etc/shadow", "/etc/hostname", "/etc/ssh", "/root/.ssh", "/home", "/var", "/run"]
)
def test_the_system_s_files_are_not_there(boxed: ContextPool, path: str) -> None:
    denied(boxed, f"import os\nos.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}).read()", GONE)


def test_the_project_and_a_database_are_not_there(boxed: ContextPool, tmp_path: Path) -> None:
    database = tmp_path / "jobs.db"
    database.write_text("secret")
    denied(boxed, f"return open({str(database)!r}).read()", GONE)
    denied(boxed, f"return open({hipq.__file__!r}).read()", GONE)
    denied(boxed, "import hipq", "ModuleNotFoundError")
    denied(boxed, "import msgspec", "ModuleNotFoundError")


def test_there_is_nothing_at_the_top_but_what_is_needed(boxed: ContextPool) -> None:
    seen = set(json.loads(python(boxed, "import os; return sorted(os.listdir('/'))").data))
    needed = {"bin", "dev", "etc", "hipq", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr"}
    of_python = {Path(prefix).parts[1] for prefix in (sys.base_prefix, sys.base_exec_prefix)}
    assert seen <= needed | of_python
    for name in of_python - needed:  # nothing there but the way to it
        assert len(json.loads(python(boxed, f"import os; return os.listdir('/{name}') + ['', '']").data)) == 3


def test_the_environment_of_the_daemon_is_nowhere(boxed: ContextPool) -> None:
    body = f"""
import os
found = []
for folder, _, files in os.walk('/proc'):
    for name in files:
        if name in ('environ', 'cmdline', 'mountinfo', 'status', 'comm'):
            try:
                with open(os.path.join(folder, name), 'rb') as file:
                    if {CANARY!r}.encode() in file.read(): found.append(folder + name)
            except OSError: pass
return [found, dict(os.environ), 0]
"""
    report = python(boxed, body)
    assert report.status == 200
    assert report.data.startswith(b"[[], {")
    assert CANARY.encode() not in report.data
    assert b"HIPQ_TEST" not in report.data


def test_other_processes_cannot_be_seen_or_signalled(boxed: ContextPool) -> None:
    report = python(
        boxed, "import os; return ['pids'] + sorted(int(n) for n in os.listdir('/proc') if n.isdigit())[:9]"
    )
    assert report.data == b'["pids", 1, 2]'
    denied(boxed, f"import os; os.kill({os.getpid()}, 0)", "ProcessLookupError")
    assert python(boxed, "import os; os.kill(-1, 0); return 'survived'").status in (200, 500)


def test_a_local_server_cannot_be_reached(boxed: ContextPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        denied(boxed, f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)", "Error")
        denied(boxed, "import socket; socket.create_connection(('192.0.2.1', 80), 5)", "Network is unreachable")
        server.settimeout(0.0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_unix_sockets_of_the_machine_cannot_be_reached(boxed: ContextPool, tmp_path: Path) -> None:
    name = f"hipq-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind("\0" + name)
        abstract.listen()
        named.bind(str(tmp_path / "socket"))
        named.listen()
        denied(boxed, f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')", "ConnectionRefusedError")
        denied(boxed, f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 'socket')!r})", GONE)


@pytest.mark.parametrize("family", [17, 38, 40], ids=["packet", "crypto", "virtual machine"])
def test_odd_kinds_of_sockets_cannot_be_made(boxed: ContextPool, family: int) -> None:
    denied(boxed, f"import socket; socket.socket({family}, 1, 0)", "Address family not supported")


CALL = """
import ctypes
c = ctypes.CDLL(None, use_errno=True)
if c.{0} < 0: raise OSError(ctypes.get_errno(), 'denied')
"""


@pytest.mark.parametrize(
    "call",
    [
        "ptrace(16, 1, 0, 0)", "ptrace(0, 0, 0, 0)", "mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        "umount2(b'/proc', 2)", "unshare(0x10000000)", "unshare(0x00020000)",
        "setns(0, 0)", "chroot(b'/tmp')", "pivot_root(b'/tmp', b'/tmp')",
        "syscall(321, 0, 0, 0)", "syscall(298, 0, 0, 0, 0, 0)", "syscall(250, 0, 0)", "syscall(310, 1, 0, 0, 0, 0, 0)",
        "syscall(165, b'none', b'/tmp', b'tmpfs', 0, 0)", "syscall(56, 0x10000011, 0, 0, 0, 0)",
        "syscall(425, 1, 0)", "syscall(435, 0, 0)", "syscall(319, b'x', 0)", "syscall(29, 0, 100, 0o1600)",
        "semget(0, 1, 0o1600)",
        "msgget(0, 0o1600)", "inotify_init1(0)",
        "syscall(0x40000000 + 101, 0, 0, 0, 0)", "sethostname(b'x', 1)", "setuid(0)", "setgid(0)",
    ],
)  # fmt: skip
def test_system_calls_that_lead_out_are_refused(boxed: ContextPool, call: str) -> None:
    if os.uname().machine != "x86_64" and "syscall" in call:
        call = "unshare(0x10000000)"  # the numbers above are those of another machine
    denied(boxed, CALL.format(call), FORBIDDEN, "Errno 38", "Errno 22", "Errno 1]")


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/usr/x",
        "/bin/x",
        "/etc/x",
        "/hipq/bootstrap.py",
        "/dev/x",
        "/proc/sys/kernel/hostname",
    ],
)
def test_nothing_can_be_written_but_in_the_scratch(boxed: ContextPool, path: str) -> None:
    denied(boxed, f"open({path!r}, 'w').write('x')", READ_ONLY, FORBIDDEN, GONE)


FILL = """
import os
names = ['{0}/big' + str(n) for n in range(9)]
try:
    for name in names:
        with open(name, 'wb') as file: file.write(bytes(10 << 20))
finally:
    for name in names:
        if os.path.exists(name): os.unlink(name)
"""


def test_the_scratch_is_its_own_and_has_its_size(boxed: ContextPool) -> None:
    mark = f"hipq-{uuid.uuid4().hex}"
    assert python(boxed, f"import os; open('/tmp/{mark}', 'w').write('x'); return os.getcwd()").data == b"/tmp"
    assert not Path("/tmp", mark).exists()
    for place in ("/tmp", "/dev/shm"):
        denied(boxed, FILL.format(place), "No space left")
    denied(boxed, "open('/tmp/file', 'wb').truncate(1 << 40)", "File too large")


def test_it_is_nobody_and_has_no_rights(boxed: ContextPool) -> None:
    status = python(boxed, "import os; return [os.getuid(), open('/proc/self/status').read(), 0]").data.decode()
    assert "CapEff:\\t0000000000000000" in status
    assert "CapPrm:\\t0000000000000000" in status
    assert "NoNewPrivs:\\t1" in status
    assert "Seccomp:\\t2" in status
    assert not status.startswith("[0,")
    run_su = "import subprocess; return [subprocess.run(['su', '-c', 'id'], capture_output=True).returncode, 'x', 0]"
    assert not python(boxed, run_su).data.startswith(b"[0,")


def test_descriptors_of_the_daemon_are_not_there(boxed: ContextPool) -> None:
    seen = python(boxed, "import os; return sorted(int(n) for n in os.listdir('/proc/self/fd'))[:20]").data
    assert seen == b"[0, 1, 2, 3, 4, 5, 6]"  # 6 is the folder itself
    child = "import subprocess; return subprocess.check_output(['ls', '/proc/self/fd'], text=True)"
    assert python(boxed, child).data.split() == [b"0", b"1", b"2", b"3"]


LISTEN = """
import os, socket
open('/tmp/{0}', 'w').close()
keep = socket.socket(socket.AF_UNIX)
keep.bind(chr(0) + '{0}')
keep.listen()
"""
CONNECT = """
import os, socket
try:
    socket.socket(socket.AF_UNIX).connect(chr(0) + '{0}')
    seen = 0
except OSError as error:
    seen = error.errno
return [os.path.exists('/tmp/{0}'), seen, os.getuid()]
"""


def test_another_context_is_another_world(boxed: ContextPool) -> None:
    mark = uuid.uuid4().hex
    one = handler("python", CONNECT.format(mark), before=LISTEN.format(mark))
    file, seen, user = json.loads(run(boxed, one).only.data)
    assert (file, seen) == (True, 0)
    other = handler("python", CONNECT.format(mark), tenant="other")
    file, seen, other_user = json.loads(run(boxed, other).only.data)
    assert (file, seen) == (False, errno.ECONNREFUSED)
    assert (user != other_user) == (os.geteuid() == 0)


def test_a_fork_bomb_leaves_others_their_processes(boxed: ContextPool) -> None:
    body = """
import os, time
try:
    while True:
        if os.fork() == 0: time.sleep(600)
except BlockingIOError:
    time.sleep(600)
"""
    began = threading.Event()
    bomb = threading.Thread(
        target=run, args=(boxed, handler("python", body)), kwargs={"seconds": 1, "on_start": lambda _: began.set()}
    )
    bomb.start()
    assert began.wait(60)
    while bomb.is_alive():
        other = handler("shell", "true | true && status 200 free", tenant="other", type="free")
        assert run(boxed, other).only.data == b"free"
    bomb.join()


def test_interpreters_of_other_languages_are_as_boxed(boxed: ContextPool) -> None:
    node = handler("node", "return [require('fs').existsSync('/etc/passwd'), Object.keys(process.env).sort(), 0]")
    assert run(boxed, node).only.data == b'[false,["HOME","LANG","PATH","PWD","TMPDIR"],0]'
    php = handler("php", "return [file_exists('/etc/passwd'), file_exists('/work'), 0];")
    assert run(boxed, php).only.data == b"[false,false,0]"
    shell = handler("shell", "cat /etc/shadow && exit 0; exit 65")
    assert run(boxed, shell).only.status == 465


def test_the_network_is_there_if_it_is_wanted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        body = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 30)"
        with pool(network=True) as contexts:
            assert run(contexts, handler("python", body)).only.status == 200
