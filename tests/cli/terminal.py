"""A program on a real terminal of a given width: what it shows, and what is typed into it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests import processes

HIPQ = (sys.executable, "-m", "hipq.cli.main")


class Shown(NamedTuple):
    status: int
    text: str

    @property
    def lines(self) -> list[str]:
        return self.text.replace("\r\n", "\n").splitlines()


def on_terminal(
    command: Sequence[str],
    folder: Path,
    *,
    columns: int = 80,
    typed: str = "",
    after: str = "",
    stdout: IO[bytes] | int | None = None,
    seconds: float = 60.0,
) -> Shown:
    """Run it with all three streams on a terminal (or standard output elsewhere); `typed` goes in once `after` is
    shown."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = processes.Popen(
        command, cwd=folder, env=environment | {"TERM": "xterm"}, stdin=theirs, stderr=theirs,
        stdout=theirs if stdout is None else stdout, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen, until = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            if typed and after in seen.decode(errors="replace"):
                os.write(ours, typed.encode())
                typed = ""
            if not select.select([ours], [], [], 0.2)[0]:
                continue
            try:
                more = os.read(ours, 65_536)
            except OSError:  # the last one who had the terminal has closed it
                break
            if not more:
                break
            seen += more
        return Shown(process.wait(60), seen.decode(errors="replace"))
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
