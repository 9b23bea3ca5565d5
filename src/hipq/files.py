"""Files that hold payloads, tokens or secrets are for their owner alone, whatever the umask says.

`$HIPQ_GROUP` names a group that may read and write them too: for programs that run as several users. A file that is
there already keeps its mode, since whoever made it may have meant it so; `exposed` tells of it.
"""

from __future__ import annotations

import grp
import os
import stat
import threading
from contextlib import suppress

from hipq.errors import Invalid

VARIABLE = "HIPQ_GROUP"
_making = threading.Lock()


def make(path: str, flags: int = os.O_RDWR) -> int:
    """A descriptor of this file, which is made if need be. FileExistsError if flags have O_EXCL and it is there."""
    flags = flags & ~os.O_CREAT | os.O_CLOEXEC
    if not flags & os.O_EXCL:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags)  # another process was faster
    try:
        _restrict(descriptor, path)
    except BaseException:
        os.close(descriptor)
        os.unlink(path)
        raise
    return descriptor


def make_database(path: str) -> None:
    """An empty file, unless the file is there. A file that is there is not opened: to close it would free all locks
    that SQLite has on it in this process. For the same reason nobody goes on before a new file is closed."""
    with _making, suppress(FileExistsError):
        if not os.path.lexists(path):
            os.close(make(path, os.O_RDWR | os.O_EXCL))


def share(path: str) -> None:
    """Give a file that this user has made to the group that is to have it."""
    group = shared_group()
    if group is None:
        return
    with suppress(FileNotFoundError):
        found = os.stat(path)
        if found.st_uid == os.geteuid() and found.st_gid != group:
            _give(path, group, path)


def _restrict(descriptor: int, path: str) -> None:
    group = shared_group()
    if group is not None:
        _give(descriptor, group, path)
    os.fchmod(descriptor, mode())  # the umask may have taken away what the owner needs


def _give(file: str | int, group: int, path: str) -> None:
    try:
        os.chown(file, -1, group)
    except PermissionError:
        raise Invalid(f"{path} cannot be given to the group {os.environ[VARIABLE]}: this user is not in it") from None


def mode() -> int:
    """What new files have."""
    return 0o600 if shared_group() is None else 0o660


def shared_group() -> int | None:
    """The group that $HIPQ_GROUP names, by its name or its number."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return None
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise Invalid(f"${VARIABLE}: there is no group {name!r:.60} on this machine") from None


def exposed(path: str) -> str:
    """The mode of a file, like 0644, if it lets more users in than new files do; "" if it does not."""
    try:
        found = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return ""
    return f"{found:04o}" if found & 0o777 & ~mode() else ""
