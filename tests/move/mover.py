"""A move that is killed at a given point: `python -m tests.move.mover SOURCE TARGET POINT`.

A point is the beginning of a step, or "copying" or "verifying": in the middle of them.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from hipq.move.moving import STEPS, MoveProgress, move

POINTS: Final = (*STEPS, "copying", "verifying")


class Doomed(MoveProgress):
    def __init__(self, point: str) -> None:
        self._point = point
        self._step = ""

    def step(self, name: str) -> None:
        self._step = name
        if name == self._point:
            os.kill(os.getpid(), signal.SIGKILL)

    def advance(self, rows: int) -> None:
        if rows and {"copying": "copy", "verifying": "verify"}.get(self._point) == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    move(sys.argv[1], sys.argv[2], progress=Doomed(sys.argv[3]))
