"""Two processes that do two things at the same moment, over and over: `python -m tests.answers_races.hammer`.

They meet before each round in a page of memory they share, then each lingers for up to a millisecond or two, so that
over many rounds every order happens. The left one prepares. What each saw is printed as JSON: by race, a word a round.
"""

from __future__ import annotations

import mmap
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hipq.job import transitions, wait_transitions
from hipq.job.fault import Fault
from hipq.job.model import Change, Row
from hipq.job.run_result import FailedRun, Rerun
from hipq.job.states import EXECUTING
from hipq.stores.claims import Claim
from hipq.stores.filters import AnswerFilter
from hipq.stores.open import open_store
from hipq.stores.protocols import Store
from tests import processes
from tests.answers_races import scene
from tests.answers_races.scene import ORDER, answer, begins_to_wait, ends_by, executing, waiting

ROOT: Final = Path(__file__).parents[2]
LINGER: Final = 0.0015
LONG: Final = 0.03
"""What one side lingers in a few rounds, so that each order happens also where the machine favours one side."""
NAP: Final = 0.00005
PATIENCE: Final = 150.0
FAULT: Final = Fault("error", "the bank is closed")
BATCH: Final = 20


def type_of(race: str) -> str:
    return race.replace(" ", "_")


class Side(NamedTuple):
    store: Store
    engine_id: int
    queue: int
    rounds: int
    race: str

    def key(self, n: int) -> str:
        return f"{self.race}-{n}"

    @property
    def type(self) -> str:
        """Each race has its own, so that none claims another's jobs."""
        return type_of(self.race)

    @property
    def keys(self) -> list[str]:
        return [self.key(n) for n in range(self.rounds)]

    def answer(self, n: int, data: object, key: str = "", **more: Any) -> str:
        new = answer(self.queue, key or self.key(n), data, self.store.now(), **({"job_type": self.type} | more))
        return str(self.store.answer([new], self.store.now())[0].outcome)

    def save(self, change: Change, now: int) -> str:
        turned = self.store.turn(self.engine_id, [change], [], now)
        return "lost" if turned.lost else "answered" if turned.answered else "saved"


# -- what is prepared ------------------------------------------------------------------------------------------------
def _executing(side: Side) -> list[Row]:
    return executing(side.store, side.engine_id, side.queue, side.keys, [side.type] * side.rounds)


def _waiting(side: Side) -> list[Row]:
    return waiting(side.store, side.engine_id, _executing(side))


def _waiting_directly(side: Side) -> list[Row]:
    """Without an answer handler."""
    return waiting(side.store, side.engine_id, _executing(side), direct=True)


def _silent(side: Side) -> list[Row]:
    """In every second round a time-out ends the job."""
    return _asking(side, _executing(side), lambda _: "")


def _silent_with_wait_keys(side: Side) -> list[Row]:
    return _asking(side, _executing(side), lambda row: _ticket(row.job_key))


def _asking(side: Side, rows: list[Row], wait_key: Callable[[Row], str]) -> list[Row]:
    now, final = side.store.now(), FailedRun(Fault("failed", "nobody answered"), 504)
    changes = [begins_to_wait(row, now, wait_key(row), final if n % 2 else None) for n, row in enumerate(rows)]
    assert not side.store.turn(side.engine_id, changes, [], now).lost
    return [change.after for change in changes]


def _ticket(key: str) -> str:
    """The key of the wait of a job with this key."""
    return f"{key} ticket"


def _many_waiting(side: Side) -> list[Row]:
    keys = [f"{key}.{n}" for key in side.keys for n in range(BATCH)]
    for start in range(0, len(keys), 500):
        some = keys[start : start + 500]
        rows = executing(side.store, side.engine_id, side.queue, some, [side.type] * len(some))
        waiting(side.store, side.engine_id, rows)
    return []


def _answered(side: Side) -> list[Row]:
    rows = _waiting(side)
    now = side.store.now()
    side.store.answer([answer(side.queue, key, "first", now, job_type=side.type) for key in side.keys], now)
    won = side.store.turn(side.engine_id, [], [Claim(side.queue, (side.type,), len(rows))], now).won
    return sorted(won, key=lambda row: row.id)


def retry_types(rounds: dict[str, int]) -> list[str]:
    """One for each round, so that a claim can mean one job."""
    return [f"{type_of(race)}{n}" for race in rounds if race.startswith("retry") for n in range(rounds[race])]


def _retried(side: Side, wait_key: Callable[[Row], str] = lambda _: "") -> list[Row]:
    """They have waited, and are to be tried again."""
    types = retry_types({side.race: side.rounds})
    rows = _asking(side, executing(side.store, side.engine_id, side.queue, side.keys, types), wait_key)
    now = side.store.now()
    again = Rerun(FAULT, delay=0.0)
    changes = [Change(row, transitions.asked_again(row, again, ORDER, now), (), "again") for row in rows]
    assert not side.store.turn(side.engine_id, changes, [], now).lost
    return rows


def _retried_with_wait_keys(side: Side) -> list[Row]:
    return _retried(side, lambda row: _ticket(row.job_key))


def _nothing(_side: Side) -> list[Row]:
    return []


# -- what is done ----------------------------------------------------------------------------------------------------
def _begin_to_wait(side: Side, rows: list[Row], n: int) -> str:
    now = side.store.now()
    return side.save(begins_to_wait(rows[n], now), now)


def _begin_to_wait_with_a_key(side: Side, rows: list[Row], n: int) -> str:
    now = side.store.now()
    return side.save(begins_to_wait(rows[n], now, key=_ticket(side.key(n))), now)


def _fail(side: Side, rows: list[Row], n: int) -> str:
    """In every second round for the last time."""
    now, row = side.store.now(), rows[n]
    errored = transitions.errored(row, FAULT, 500, now)
    ended = replace(transitions.gave_up(errored, FAULT, now), token=errored.token)
    return side.save(Change(row, ended if n % 2 else errored, (), "error", seeking=errored), now)


def _time_out(side: Side, rows: list[Row], n: int) -> str:
    now = side.store.now()
    return side.save(Change(rows[n], wait_transitions.overdue(rows[n], ORDER, now), (), "timed out"), now)


def _cancel(side: Side, rows: list[Row], n: int) -> str:
    now = side.store.now()
    return side.save(Change(rows[n], transitions.cancelled(rows[n], "not wanted", now), (), "cancelled"), now)


def _settle(side: Side, rows: list[Row], n: int) -> str:
    now = side.store.now()
    (given,) = side.store.answers(AnswerFilter(queue=side.queue, job_key=side.key(n), limit=1))
    return side.save(ends_by(rows[n], given, now), now)


def _enqueue(side: Side, _rows: list[Row], n: int) -> str:
    (stored,) = side.store.enqueue([scene.new(side.queue, side.key(n), side.store.now(), side.type)])
    return "duplicate" if stored.duplicate else "added"


def _claim_again(side: Side, _rows: list[Row], n: int) -> str:
    """It is claimed to run again or, if its answer was faster, to look at that; both end by it."""
    now = side.store.now()
    turned = side.store.turn(side.engine_id, [], [Claim(side.queue, (f"{side.type}{n}",), 1)], now)
    if not turned.won:
        return "none"
    (row,) = turned.won
    now = side.store.now()
    if row.phase == EXECUTING:
        return f"ran, {side.save(begins_to_wait(row, now, row.wait_key), now)}"  # asked again, the bank says the same
    return f"looked, {side.save(ends_by(row, turned.answers[row.id], now), now)}"


def _answer(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, f"answer {n}", answer_id=f"id {n}" if n % 2 else "")


def _answer_ticket(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, f"answer {n}", answer_id=f"id {n}" if n % 2 else "", key=_ticket(side.key(n)))


def _answer_retried(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, f"answer {n}", job_type=f"{side.type}{n}")


def _answer_retried_ticket(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, f"answer {n}", job_type=f"{side.type}{n}", key=_ticket(side.key(n)))


def _answer_left(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, "left")


def _answer_right(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, "right")


def _answer_the_same(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, "the same", answer_id=f"id {n}" if n % 2 else "")


def _end_left(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, "left")


def _end_right(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, "right")


def _end_by_the_same(side: Side, _rows: list[Row], n: int) -> str:
    return side.answer(n, "the same", answer_id=f"id {n}" if n % 2 else "")


def _answer_many(side: Side, n: int, numbers: list[int], data: str) -> str:
    now = side.store.now()
    news = [answer(side.queue, f"{side.key(n)}.{m}", data, now, answer_id=data, job_type=side.type) for m in numbers]
    return ",".join(str(one.outcome) for one in side.store.answer(news, now))


def _answer_upwards(side: Side, _rows: list[Row], n: int) -> str:
    return _answer_many(side, n, list(range(BATCH)), "left")


def _answer_downwards(side: Side, _rows: list[Row], n: int) -> str:
    return _answer_many(side, n, list(range(BATCH))[::-1], "right")


class Race(NamedTuple):
    prepare: Callable[[Side], list[Row]]
    left: Callable[[Side, list[Row], int], str]
    right: Callable[[Side, list[Row], int], str]


RACES: Final = {
    "wait": Race(_executing, _begin_to_wait, _answer),
    "key of the wait": Race(_executing, _begin_to_wait_with_a_key, _answer_ticket),
    "own key": Race(_executing, _begin_to_wait_with_a_key, _answer),
    "failure": Race(_executing, _fail, _answer),
    "time-out": Race(_silent, _time_out, _answer),
    "time-out of a wait with a key": Race(_silent_with_wait_keys, _time_out, _answer_ticket),
    "enqueue": Race(_nothing, _enqueue, _answer),
    "different": Race(_waiting, _answer_left, _answer_right),
    "same": Race(_waiting, _answer_the_same, _answer_the_same),
    "direct different": Race(_waiting_directly, _end_left, _end_right),
    "direct same": Race(_waiting_directly, _end_by_the_same, _end_by_the_same),
    "cancel": Race(_waiting, _cancel, _answer),
    "settle": Race(_answered, _settle, _answer),
    "retry": Race(_retried, _claim_again, _answer_retried),
    "retry of a wait with a key": Race(_retried_with_wait_keys, _claim_again, _answer_retried_ticket),
    "batches": Race(_many_waiting, _answer_upwards, _answer_downwards),
}


class Page:
    """Two counters in memory that both processes see. Who comes first looks again and again, with naps that are short
    beside what both linger: without them it would hold up the other where processors are few."""

    def __init__(self, file: Path, right: bool) -> None:
        with file.open("r+b") as opened:
            self._memory = memoryview(mmap.mmap(opened.fileno(), 16)).cast("Q")
        self._own, self._other = (1, 0) if right else (0, 1)
        self._met = 0

    def meet(self) -> None:
        self._met += 1
        self._memory[self._own] = self._met
        until = time.monotonic() + PATIENCE
        while self._memory[self._other] < self._met:
            time.sleep(NAP)
            if time.monotonic() > until:
                raise SystemExit("the other process does not come")


def linger(chance: random.Random, n: int, right: bool) -> None:
    if n % 100 < 8 and (n % 4 < 2) == right:
        time.sleep(LONG)
    until = time.perf_counter() + chance.uniform(0, LINGER)
    while time.perf_counter() < until:
        pass


def run(side_name: str, url: str, queue: int, page: Page, wanted: dict[str, int]) -> dict[str, list[str]]:
    store = open_store(url)
    store.queues()
    engine_id = store.take_lease(scene.LEASE, side_name)
    chance = random.Random(side_name)
    seen: dict[str, list[str]] = {}
    for name, rounds in wanted.items():
        race, side = RACES[name], Side(store, engine_id, queue, rounds, name)
        rows = race.prepare(side) if side_name == "left" else []
        act = race.left if side_name == "left" else race.right
        seen[name] = []
        for n in range(rounds):
            page.meet()
            linger(chance, n, side_name == "right")
            seen[name].append(act(side, rows, n))
        page.meet()
    store.close()
    return seen


def hammer(url: str, queue: int, wanted: dict[str, int], folder: Path) -> list[dict[str, list[str]]]:
    """Both processes; what the left one saw and what the right one did."""
    file = folder / "page"
    file.write_bytes(bytes(16))
    text = msgspec.json.encode(wanted).decode()
    command = [sys.executable, "-m", __name__]
    both = [
        processes.Popen(
            [*command, side, url, str(queue), str(file), text],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for side in ("left", "right")
    ]  # fmt: skip
    try:
        seen = []
        for process in both:
            out, err = process.communicate(timeout=2 * PATIENCE)
            assert process.returncode == 0, err
            seen.append(msgspec.json.decode(out, type=dict[str, list[str]]))
    finally:
        for process in both:
            process.kill()
            process.wait()
    return seen


if __name__ == "__main__":
    which, where, number, path, races = sys.argv[1:]
    wanted = msgspec.json.decode(races, type=dict[str, int])
    found = run(which, where, int(number), Page(Path(path), which == "right"), wanted)
    print(msgspec.json.encode(found).decode())
