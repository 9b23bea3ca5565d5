"""Whether a folder of the daemon can be hidden from handlers, if it is where they look."""

from __future__ import annotations

import os
import sys
from typing import Final

from hipq.sandbox.bubblewrap import SETTINGS, SYSTEM, is_below
from hipq.sandbox.interpreters import interpreter
from hipq.sandbox.settings import ContextSettings, languages

_PARTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share", "include", "etc")
_SHARED: Final = tuple(f"{top}/{part}" for top in ("/usr", "/usr/local") for part in _PARTS)
"""Folders of the system that programs need something of."""


def cannot_hide(folder: str, settings: ContextSettings) -> bool:
    """Whether handlers would see this folder and cannot do without it, because their interpreter is in the same one."""
    if settings.trust or not sys.platform.startswith("linux"):
        return False  # there is no sandbox, or there are no handlers
    found = [interpreter(lang, path) for lang, path in languages(settings).items() if path]
    seen = {path: path for path in (*SYSTEM, *SETTINGS)}
    for one in found:
        seen |= one.binds
    needed = [*SYSTEM, *SETTINGS, *_SHARED, *_c_library(), *(path for one in found for path in one.needs)]
    real = os.path.realpath(folder)
    is_seen = any(is_below(real, os.path.realpath(path)) for path in seen)
    return is_seen and any(is_below(os.path.realpath(path), real) for path in needed)


def _c_library() -> list[str]:
    """The folder of this process's C library, which most programs use."""
    try:
        with open("/proc/self/maps", errors="replace") as maps:
            files = {line.split(maxsplit=5)[5].strip() for line in maps if line.count("/") > 0}
    except (OSError, IndexError):
        return []
    return [file for file in files if os.path.basename(file).startswith(("libc.", "libc-", "ld-"))]
