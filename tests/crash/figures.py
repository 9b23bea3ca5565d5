"""What a run of the fault campaign came to: its log compared with what the database has in the end."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

from hipq import Hipq
from hipq.job.model import Row
from hipq.job.states import Code
from hipq.stores.filters import Filter

PAGE = 5_000
MINUTE = 60_000_000


def _rows(app: Hipq, queue: int) -> list[Row]:
    found: list[Row] = []
    while page := app.store.find(Filter(queue, after=found[-1].id if found else 0, limit=PAGE)):
        found += page
    return found


class Figures:
    """`wrong` lists all that must not be, by kind; everything else is for people."""

    def __init__(self, app: Hipq, folder: Path) -> None:
        self.rows = [row for queue in app.queues for row in _rows(app, queue.number)]
        self.log = [line.split(maxsplit=3) for line in (folder / "log").read_text().splitlines()]
        self.by_id = {row.id: row for row in self.rows}
        self.wrong = {"lost": self.lost(), "doubled": self.doubled(), "run again": self.run_again()}

    def lines(self, word: str) -> list[list[str]]:
        return [line[1:] for line in self.log if line[0] == word]

    def lost(self) -> list[str]:
        """Whatever was acknowledged, to a client or to an engine, and is not so in the end."""
        found = []
        for job_id, data in self.lines("added"):
            row = self.by_id.get(int(job_id))
            if row is None or json.loads(row.job_data) != data:
                found.append(f"job {job_id} ({data}) was acknowledged and is not there")
        found += [
            f"job {row.id} ({row.job_data}) never ended: {row.history}" for row in self.rows if row.state != "final"
        ]
        by_data = {json.loads(row.job_data): row for row in self.rows}
        told = {data for _, data in self.lines("added")}
        for (data,) in self.lines("answered"):
            row = by_data.get(data)
            if row is None and data in told:
                found.append(f"the job of the answer {data} is not there")
            elif row and (row.code != "ok" or json.loads(row.result) != {"for": data}):
                found.append(f"the answer {data} was acknowledged, and its job came to {row.code} {row.result}")
        for (job_id,) in self.lines("cancelled"):
            row = self.by_id.get(int(job_id))
            if row is None or row.code != Code.CANCELLED:
                found.append(f"job {job_id} was cancelled, and has {row and row.code}")
        for job_id, attempt, how in self.lines("saved"):
            row = self.by_id.get(int(job_id))
            if row is None:
                found.append(f"an outcome of job {job_id} was stored, and the job is not there")
            elif how in ("ok", "failed") and row.code != how:
                found.append(f"job {job_id} was stored as {how}, and is {row.code}")
            elif row.attempt < int(attempt):
                found.append(f"attempt {attempt} of job {job_id} was stored, and it has {row.attempt} attempts")
        found += [
            f"job {job_id} ran, and is not there" for job_id, _ in self.lines("began") if int(job_id) not in self.by_id
        ]
        return found + self.lost_ticks()

    def lost_ticks(self) -> list[str]:
        ticks = sorted(int(row.job_key.rpartition("@")[2]) for row in self.rows if row.job_type == "minutely")
        return [f"no job for the tick {tick + MINUTE}" for tick, after in pairwise(ticks) if after != tick + MINUTE]

    def doubled(self) -> list[str]:
        """Jobs that are there twice: in the live table and the final one, or from one call, or one tick."""
        ids = Counter(row.id for row in self.rows)
        names = Counter(row.job_key if row.job_type == "minutely" else row.job_data for row in self.rows)
        return [
            f"{what} is there {count} times" for found in (ids, names) for what, count in found.items() if count > 1
        ]

    def run_again(self) -> list[str]:
        """Handlers that began though an engine knew already that what that attempt came to is stored."""
        found, over, ended = [], set[tuple[str, str]](), set[str]()
        began = Counter((job_id, attempt) for job_id, attempt in self.lines("began"))
        for word, job_id, *more in self.log:
            if word == "saved":
                over.add((job_id, more[0]))
                if more[1] in ("ok", "failed", "gave up", "timed out"):
                    ended.add(job_id)
            elif word == "began" and (job_id, more[0]) in over:
                found.append(f"attempt {more[0]} of job {job_id} began after its outcome was stored")
            elif word in ("began", "looked") and job_id in ended:
                found.append(f"attempt {more[0]} of job {job_id} {word} after the job had ended")
        return found + [
            f"attempt {attempt} of job {job_id} began {n} times" for (job_id, attempt), n in began.items() if n > 1
        ]

    def told(self) -> dict[str, object]:
        """For people. `run twice`: jobs that ran once more than their failures explain, as at-least-once allows."""
        runs = Counter(int(job_id) for job_id, _ in self.lines("began"))
        unheard = {data for (data,) in self.lines("unanswered")}
        stored = sum(json.loads(row.job_data) in unheard for row in self.rows)
        return {
            "acknowledged": len(self.lines("added")),
            "finished": sum(row.state == "final" for row in self.rows),
            "unanswered": f"{len(unheard)}, of which {stored} were stored",
            "answers acknowledged": len(self.lines("answered")),
            "cancels acknowledged": len(self.lines("cancelled")),
            "ticks": sum(row.job_type == "minutely" for row in self.rows),
            "runs": sum(runs.values()),
            "run twice": sum(runs[row.id] > row.failures + 1 for row in self.rows if row.job_type != "silent"),
            **{name: len(some) for name, some in self.wrong.items()},
        }
