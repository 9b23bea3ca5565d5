"""Handlers that hold more than they may, or go on when they should not: as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import resource

import pytest

from tests.executors.running import USERS, as_user, handler, pool, run

each_user = pytest.mark.parametrize("user", USERS, ids=lambda user: f"as {user}")

TABLES = """
import mmap
size = 512 << 30
held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
held.madvise(15)  # no huge pages: each look makes a page of tables, and keeps nothing else
for place in range(0, size, 2 << 20): held[place]
import time; time.sleep(600)
"""
SPLICE = """
import ctypes, os, platform
number = {'x86_64': 278, 'aarch64': 75}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
reading, writing = os.pipe()
held = ctypes.create_string_buffer(4096)
class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
vector = Vector(ctypes.addressof(held), 4096)
if libc.syscall(number, writing, ctypes.byref(vector), 1, 0) < 0: return os.strerror(ctypes.get_errno())
"""
ZERO_COPY = """
import socket, mmap
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
client.setsockopt(socket.SOL_SOCKET, 60, 1)  # SO_ZEROCOPY
client.send(mmap.mmap(-1, 65536), 0x4000000)
"""
FILES = "import itertools\nfor n in itertools.count(): open(f'/dev/shm/{n}', 'w').close()"


@each_user
def test_page_tables_are_memory(user: int) -> None:
    ((status, _, error),) = as_user(user, ("python", TABLES)).reports
    assert (status, error) == (509, "its processes used more than 512 MB of memory together")


@each_user
def test_memory_cannot_be_left_in_pipes_or_sockets(user: int) -> None:
    spliced, sent = as_user(user, ("python", SPLICE), ("python", ZERO_COPY)).reports
    assert spliced == (200, "Function not implemented", "")
    assert sent[0] == 500
    assert "No buffer space available" in sent[2]


@each_user
def test_endless_files_in_shared_memory_are_ended(user: int) -> None:
    ((status, _, error),) = as_user(user, ("python", FILES)).reports
    assert (status, error) == (509, "it made more than 100,000 files")


@each_user
def test_a_crash_leaves_no_picture_of_its_memory(user: int) -> None:
    """The secrets of its handler are there. 0 keeps one from a file; 1 from a program that takes such, too."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    most = 1 if hard == resource.RLIM_INFINITY else min(hard, 1)
    body = "import resource\nreturn list(resource.getrlimit(resource.RLIMIT_CORE)) + [0]"
    assert json.loads(as_user(user, ("python", body)).reports[0][1]) == [most, most, 0]


HOARD = "import builtins; builtins.held = bytearray(100 << 20)"
HOARD_FILE = "open('/tmp/held', 'wb').write(bytes(20 << 20)); open('/dev/shm/held', 'wb').write(bytes(20 << 20))"


@each_user
def test_what_idle_contexts_keep_is_bounded(user: int) -> None:
    found = as_user(user, *[("python", HOARD)] * 6, idle_memory=300 << 20)
    assert [status for status, _, _ in found.reports] == [200] * 6
    assert found.idle == 2
    assert found.idle_memory <= 300 << 20
    assert as_user(user, *[("python", HOARD_FILE)] * 4, idle_memory=130 << 20).idle == 2


def test_the_idle_context_that_keeps_most_is_ended_and_not_its_neighbours() -> None:
    with pool(idle_memory=100 << 20) as contexts:
        small = [handler("python", "return 'ok'", tenant=f"small{number}") for number in range(3)]
        for one in small:
            assert run(contexts, one).only.status == 200
        hoards = handler("python", HOARD, tenant="hoards")
        assert run(contexts, hoards).only.status == 200
        assert set(contexts.idle()) == {one.home for one in small}


SPIN = """
import os, time
counter = int(open('/proc/1/syscall').read().split()[-1], 16)
with open('/proc/1/mem', 'r+b', buffering=0) as memory:
    memory.seek(counter)
    memory.write(b'\\xeb\\xfe')  # a jump to itself, where it goes on when one of its children ends
if os.fork() == 0:
    if os.fork() == 0: time.sleep(0.05)
    os._exit(0)
os.wait()
time.sleep(0.2)
return 'spins'
"""


@each_user
def test_the_first_process_of_a_sandbox_stops_with_its_job(user: int) -> None:
    body = SPIN if os.uname().machine == "x86_64" and user != 0 else "return 'spins'"  # root's is another user's
    found = as_user(user, ("python", body), ("python", "return 'next'"), idle_seconds=1.0)
    assert [data for _, data, _ in found.reports] == ["spins", "next"]
    assert found.idle == 2
    assert found.idle_cpu == 0


@each_user
def test_the_first_process_of_a_sandbox_has_its_limits(user: int) -> None:
    """It runs whatever an ordinary user's handler writes into its memory: zero-copy, say, or forks without end."""
    body = "return [line[26:47].strip() for line in open('/proc/1/limits')]"
    ((status, data, _),) = as_user(user, ("python", body)).reports
    own = as_user(user, ("python", body.replace("/1/", "/self/"))).reports[0][1]
    assert (status, data) == (200, own)


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user the handler has been that of a user namespace")
def test_the_first_process_of_root_s_sandbox_cannot_be_written_to() -> None:
    ((status, _, error),) = as_user(0, ("python", SPIN)).reports
    assert status == 500
    assert "PermissionError" in error


@each_user
def test_nothing_is_left_in_any_set_of_capabilities(user: int) -> None:
    body = "return ''.join(line.split()[1] for line in open('/proc/self/status') if line.startswith('Cap'))"
    ((status, data, _),) = as_user(user, ("python", body)).reports
    assert (status, data) == (200, "0" * 16 * 5)
