"""One life of a journal, step by step; and a process that dies at each of them.

python -m tests.journal.life FOLDER    one folder and one line for every step: what had been acknowledged, and taken
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hipq.journal import Journal, Position
from tests.journal.helpers import WAIT, batch

STEPS = ("fdatasync", "fsync", "ftruncate", "mkdir", "pwrite", "rename", "unlink", "write")
Say = Callable[[str, Any], None]


def live(folder: Path, say: Say) -> None:
    """Says `acknowledged` and the number of a batch; `taken`, the numbers that a store has now, and its position."""
    position: Position | None = None
    for first in (1, 11, 21):
        journal = Journal(folder, segment_bytes=450)
        journal.start_at(position)
        for number in range(first, first + 5):
            journal.write_now(batch(number, b"a\nb" if number % 2 else b"ab"))
            say("acknowledged", number)
            if number % 3 == 0:
                token = journal.read_reserve(2, WAIT)
                assert token
                numbers = [one.first for one in journal.read(token)]
                position = token.after
                say("taken", [numbers, str(position)])
                journal.rsync(token)
        journal.close()


def die_at(step: int) -> None:
    """Before the system call with this number, of those that change files."""
    left = step

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*given, **more)

        return call

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))


def child(folder: Path, step: int, told: int) -> None:
    write = os.write

    def say(kind: str, value: Any) -> None:
        write(told, json.dumps([kind, value]).encode() + b"\n")

    die_at(step)
    live(folder, say)


def main() -> None:
    for step in range(1, 10_000):
        folder = Path(sys.argv[1]) / str(step)
        heard, told = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                child(folder, step, told)
                os._exit(0)
            finally:
                os._exit(1)
        os.close(told)
        with os.fdopen(heard, "rb") as lines:
            said = [json.loads(line) for line in lines]
        _, status = os.waitpid(pid, 0)
        is_whole = os.waitstatus_to_exitcode(status) == 0
        print(json.dumps({"step": step, "status": os.waitstatus_to_exitcode(status), "said": said}))
        if is_whole or os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            return


if __name__ == "__main__":
    main()
