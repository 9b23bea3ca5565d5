"""The application whose answers are measured: `hipq listen` and `hipq callbacks` are given this one. Its database, its
queue and its stream are told by the environment."""

from __future__ import annotations

import os
from typing import Any

from hipq import Hipq, Job, Wait

app = Hipq("bench", os.environ["BENCH_DB"])
queue = app.queue(os.environ["BENCH_QUEUE"])


@queue.job("work")
def work(_: Job[Any]) -> Wait:
    """Never run here: the jobs wait already."""
    return Wait()


if stream := os.environ.get("BENCH_STREAM"):
    app.listen(stream, to=work, key="ref")
