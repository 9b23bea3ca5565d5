"""How much of the source one job touches: `python -m bench.claim_to_wait` counts the functions, and the files they are
in, that run while an engine on SQLite claims a job, runs its handler in a thread and saves that the job waits."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any

import hipq
from hipq import Hipq, Wait
from hipq.job.states import WAITING

SOURCE = str(Path(hipq.__file__).parent)


def main() -> None:
    touched: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        app = Hipq("count", f"sqlite:///{folder}/count.db")
        queue = app.queue("jobs")

        @queue.job("ask", timeout=3600)
        def ask(_job: Any) -> Wait:
            return Wait()

        app.migrate()
        engine = app.engine()
        engine.turn()  # takes the lease, and looks what there is
        job_id = ask.enqueue({"n": 1})
        engine.wake()

        def called(frame: FrameType, event: str, _argument: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
                touched[code.co_filename[len(SOURCE) + 1 :]].add(code.co_qualname)

        threading.setprofile(called)
        sys.setprofile(called)
        engine.turn()
        while engine.batch.in_flight:
            time.sleep(0.05)
            engine.turn()
        sys.setprofile(None)
        threading.setprofile(None)
        assert app.job(job_id).phase == WAITING
        engine.executor.close()
        app.close()
    for file, functions in sorted(touched.items()):
        print(f"{file:32} {len(functions):4}  {', '.join(sorted(functions))}")
    print(f"{sum(map(len, touched.values()))} functions in {len(touched)} files")


if __name__ == "__main__":
    main()
