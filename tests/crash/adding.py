"""A program that adds jobs until it is told that it cannot: `python -m tests.crash.adding URL FILE`.

FILE gets a line for each job that was acknowledged: when the call began, on the clock all processes share, and its id.
Exit status 3: the database can no longer be trusted.
"""

from __future__ import annotations

import sys
import time

from hipq import Hipq
from hipq.errors import StoreBroken

BROKEN = 3


def main(url: str, file: str) -> int:
    queue = Hipq("crash", url).queue("jobs")
    with open(file, "ab", buffering=0) as told:
        while True:
            began = time.monotonic_ns()
            try:
                job_id = queue.enqueue("work", "added")
            except StoreBroken as error:
                print(error, file=sys.stderr)
                return BROKEN
            told.write(f"{began} {job_id}\n".encode())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
