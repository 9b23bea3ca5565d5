"""What simulated handlers do, how long they take, and which of them kill."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hipq.executors.execution import Execution
from hipq.job import payload
from hipq.job.answer import Answer
from hipq.job.fault import Fault
from hipq.job.model import Row
from hipq.job.outcome import Failed, Ok, Progress, Retry, Wait
from hipq.job.retries import backoff
from hipq.job.states import EXECUTING
from hipq.job.view import Job
from hipq.job.when import SECOND
from tests.simulation.audit import ATTEMPTS, Broken
from tests.simulation.daemon import HOG, HOG_RUNS
from tests.simulation.outside import ASKING, Request, draw_request
from tests.simulation.windows import is_open

if TYPE_CHECKING:
    from tests.simulation.world import World


_POLICY: Final = backoff(attempts=ATTEMPTS, base=2)


class Look(NamedTuple):
    """What an answer handler came to."""

    do: str
    result: str
    seconds: float = 0.0


class Jobs:
    def __init__(self, world: World) -> None:
        self._world = world
        self.executed: list[tuple[int, str, str]] = []
        """Id, marker and payload of every run that came to its end."""
        self.started: set[tuple[int, int]] = set()
        """Id and token of every run that began."""
        self.looked: dict[tuple[int, int, int], Look] = {}
        """What answer handlers came to, by job, token and answer;"""
        self.tried: Counter[tuple[int, int]] = Counter()
        """how often each was called, by job and answer;"""
        self.asked: dict[tuple[int, int], Request] = {}
        """and what handlers came to that asked the world outside, by job and token."""
        self.crashed: Counter[int] = Counter()
        """How often jobs killed the process that ran them alone."""
        self.lanes: set[str] = set()
        """The lanes of which some code began."""
        self.now_running: Execution

    def again(self, job: Job[Any], fault: Fault) -> Any:
        """The retry handler of all but urgent jobs. Its copy says how often they failed: `audit` looks there."""
        job.data["tries"] = job.failures
        return _POLICY(job, fault)

    def _ran(self, job: Job[Any]) -> str:
        """Note a run that came to its end, with its payload as it was submitted; what is its marker."""
        marker: str = job.data["marker"]
        if job.data["tries"] > job.failures:
            raise Broken(f"I3: job {job.id} ran with another's data: {job.data}")
        self.executed.append((job.id, marker, payload.encode({**job.data, "tries": 0})))
        job.data["tries"] = -1  # its own object, of which nothing is kept
        return marker

    def handler(self, job: Job[Any]) -> Any:
        marker = self._ran(job)
        draw = random.Random(f"{self._world.seed}/{marker}/{job.attempt}")
        kind = draw.choices(
            ["ok", "error", "failed", "again", "wait", "chain"], [50, 15, 5, 10, 10, 10 if job.data["depth"] < 2 else 0]
        )[0]
        if kind == "error":
            raise ValueError("simulated")
        if kind == "failed":
            return Failed("simulated")
        if kind == "again" and job.attempt < 20:
            return Retry(draw.uniform(0, 5))
        if kind == "wait":
            return Wait(timeout=draw.uniform(1, 30))
        if kind == "chain":
            name = f"{marker}/{job.attempt}.{len(self.executed)}"
            child = {**job.data, "marker": name, "depth": job.data["depth"] + 1, "tries": 0}
            self._world.clients.submitted[name] = payload.encode(child)
            job.enqueue("work", child)
        return Ok(marker)

    # -- those that ask the world outside ---------------------------------------------------------------------------
    def asks(self, job: Job[Any]) -> Any:
        """The request was sent when it began: here it ends."""
        marker = self._ran(job)
        request = draw_request(self._world.seed, marker, job.attempt, job.type)
        row = self.now_running.row
        self.asked[row.id, row.token] = request
        match request.kind:
            case "error":
                raise ValueError("simulated")
            case "failed":
                return Failed("simulated")
            case "again":
                return Retry(2.0)
            case "ok":
                return Ok(marker)
        meaning = {"": None, "ok": Ok("silence"), "failed": Failed("silence"), "again": Retry(3.0)}[request.on_timeout]
        return Wait(
            key=request.key or None, timeout=request.timeout, heartbeat=request.heartbeat,
            on_timeout=meaning if request.on_timeout != "again" or job.attempt < 20 else None,
        )  # fmt: skip

    def looks(self, job: Job[Any], answer: Answer) -> Any:
        """An answer handler: what it does is written in the answer."""
        row, world = self.now_running.row, self._world
        self.tried[row.id, answer.id] += 1
        do, number = answer.data["do"], answer.data["n"]
        if self.tried[row.id, answer.id] <= answer.data["fails"]:
            do = "raise"
        if job.attempt >= 20 and do in ("retry", "judge"):
            do = "ok"
        draw = random.Random(f"{world.seed}/look/{row.id}/{answer.id}")
        look = Look(do, result=payload.encode([job.id, answer.id, number]))
        match do:
            case "raise":
                found: Any = ValueError("simulated")
            case "ok":
                found = Ok([job.id, answer.id, number])
            case "failed":
                found = Failed(f"answer {answer.id}")
            case "retry":
                found = Retry(draw.uniform(0, 4))
            case "judge":
                found = Retry()
            case "progress":
                found = Progress()
            case "extend":
                look = look._replace(seconds=draw.uniform(1, 30))
                found = Progress(extend=look.seconds)
            case "wait":
                look = look._replace(seconds=draw.uniform(1, 30))
                found = Wait(timeout=look.seconds)
                world.outside.requested(job.type, job.key, job.attempt)
            case _:
                look = look._replace(seconds=draw.uniform(1, 30))
                key = f"{job.data['marker']}.e{answer.id}"
                found = Wait(timeout=look.seconds, key=key)
                world.outside.requested(job.type, key, job.attempt)
        self.looked[row.id, row.token, answer.id] = look
        if isinstance(found, ValueError):
            raise found
        return found

    def calls_off(self, job: Job[Any]) -> None:
        if random.Random(f"{self._world.seed}/off/{job.id}/{job.attempt}").random() < 0.4:
            raise ValueError("simulated")

    def too_late(self, _job: Job[Any], answer: Answer) -> None:
        self._world.outside.late.append(answer.id)

    def begins(self, execution: Execution) -> None:
        """A handler, or other code of a job, begins."""
        row = execution.row
        self.started.add((row.id, row.token))
        self.lanes.add(row.lane)
        if row.phase != EXECUTING:
            return
        if row.job_type in ASKING:
            marker = payload.decode(row.job_data)["marker"]
            request = draw_request(self._world.seed, marker, row.attempt, row.job_type)
            self._world.outside.requested(row.job_type, request.key or row.job_key, row.attempt, row.job_key)
        if not is_open(row.time_windows, self._world.clock.now()):
            raise Broken(f"I10: job {row.id} began outside its window")

    def duration(self, row: Row) -> int:
        if self.is_poison(row):
            return SECOND // 10  # it crashes before its time-out can strike
        if row.job_type == HOG:
            return HOG_RUNS
        draw = random.Random(f"{self._world.seed}/{row.id}/{row.attempt}/{row.token}")
        return round(draw.choice([0.001, 0.1, 2.0, 8.0, 25.0]) * draw.uniform(0.5, 1.5) * SECOND)

    def is_poison(self, row: Row) -> bool:
        return payload.decode(row.job_data)["marker"] in self._world.clients.poison
