"""The world outside: it is sent requests and brings answers. Early, late, doubled, in the wrong order, or not at all.

It behaves like a broker: what was not acknowledged it brings again, and once in a while what was.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

from hipq.app import Hipq
from hipq.errors import Conflict, NotFound, StoreUnavailable
from hipq.job.answer import Answered
from hipq.job.when import SECOND
from hipq.stores.clock import Clock
from tests.simulation.scene import ASK, FENCED, LETTER

if TYPE_CHECKING:
    from tests.simulation.world import World

BRIEF = "b"
"""What the markers of jobs end with that do not wait for an answer."""
SOON = 3 * SECOND
"""Answers that are due within this time may come together."""
_DELAYS = (0.02, 0.3, 1.5, 5.0, 12.0, 30.0, 70.0)
_LAST = ("ok", "ok", "ok", "failed", "retry", "judge")
"""What an answer may lead to, if it is the last one; the others go on waiting."""
_MORE = ("progress", "extend", "wait", "elsewhere")


class Letter(NamedTuple):
    """An answer on its way."""

    job_type: str
    key: str
    data: Any
    answer_id: str | None = None
    error: bool = False
    attempt: int | None = None

    @property
    def named(self) -> dict[str, Any]:
        return {"queue": "jobs", "type": self.job_type, **dict(zip(self._fields[1:], self[1:], strict=True))}


class Receipt(NamedTuple):
    """What was acknowledged, and in which call of the store."""

    call: int
    letters: list[Letter]
    words: list[Answered]


class Outside:
    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._ways: list[tuple[int, int, Letter]] = []
        """What is on its way: when it arrives, a number, the letter."""
        self.receipts: list[Receipt] = []
        self.keys: list[tuple[str, str]] = []
        """Job types and keys that it has heard of."""
        self.late: list[int] = []
        """Answers that `on_late` was shown."""
        self._busy = False

    # -- what it decides to answer ----------------------------------------------------------------------------------
    def requested(self, job_type: str, key: str, attempt: int, own_key: str = "") -> None:
        """A request reached it: draw what it answers, and when."""
        chance = self._world.chance
        self.keys.append((job_type, key))
        old = [one.letters[0] for one in self.receipts if one.letters[0][:2] == (job_type, key)]
        if old and chance.random() < 0.3:  # what another attempt, or the job before, was told comes again
            self._post(chance.choice(old)._replace(answer_id=None), self._draw_delay() + 5)
        attempted = attempt if chance.random() < 0.5 else None
        kind = chance.choices(
            ["silence", "done", "several", "doubled", "conflict", "error", "elder"], [12, 38, 20, 10, 8, 8, 4]
        )[0]
        if kind == "silence":
            return
        after = self._draw_delay()
        key = own_key if own_key and chance.random() < 0.2 else key
        first = self._letter(job_type, key, attempted, chance.choice(_LAST), error=kind == "error")
        if kind == "several":
            self._post_several(first, after)
        elif kind == "doubled":
            self._post(first, after)
            self._post(first, max(after + chance.choice([-1, 1]) * self._draw_delay(), 0.0))
        elif kind == "conflict":
            self._post(first, after)
            other = self._letter(job_type, key, attempted, chance.choice(_LAST), error=chance.random() < 0.3)
            self._post(other, after + chance.choice([0.0, self._draw_delay()]))
        elif kind == "elder" and attempt > 1:
            self._post(first._replace(attempt=attempt - 1), after)
        else:
            self._post(first, after)

    def _post_several(self, last: Letter, after: float) -> None:
        """Accepted, some progress (now and then the same words twice), done; sometimes not in that order."""
        chance = self._world.chance
        some = [self._letter(*last[:2], last.attempt, chance.choice(_MORE)) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.3:
            some.append(some[-1]._replace(answer_id=None))
        some.append(last)
        if chance.random() < 0.2:
            chance.shuffle(some)
        for one in some:
            self._post(one, after)
            after += chance.choice([0.0, self._draw_delay() / 4])

    def hint(self, job_type: str, key: str) -> None:
        """An answer comes before its job is added."""
        self.keys.append((job_type, key))
        do = self._world.chance.choice([*_LAST, *_MORE])
        self._post(self._letter(job_type, key, None, do), 0.0)

    def _letter(self, job_type: str, key: str, attempt: int | None, do: str, *, error: bool = False) -> Letter:
        chance = self._world.chance
        self._numbers += 1
        fails = chance.choice([0, 0, 0, 1, 2])
        data = {"n": self._numbers, "do": do, "fails": fails}
        named = chance.random() < 0.6
        if chance.random() < (0.1 if named else 0.5):
            data = {"n": 0, "do": chance.choice([do, "ok"]), "fails": 0}  # many have the same body
        answer_id = f"a{self._numbers}" if named else None
        return Letter(job_type, key, data, answer_id, error, attempt)

    def _draw_delay(self) -> float:
        chance = self._world.chance
        return chance.choice(_DELAYS) * chance.uniform(0.3, 1.3)

    # -- bringing it ------------------------------------------------------------------------------------------------
    def _post(self, letter: Letter, after: float) -> None:
        self._numbers += 1
        way = (self._world.clock.steady() + round(after * SECOND), self._numbers, letter)
        self._ways.append(way)
        self._world.plan(way[0], lambda: self._bring(way))

    def _bring(self, way: tuple[int, int, Letter]) -> None:
        if way not in self._ways:
            return  # it came together with another one
        chance = self._world.chance
        ways = [way]
        if chance.random() < 0.3:
            ways += [one for one in self._ways if one[0] <= way[0] + SOON and one is not way]
        self._deliver(ways)

    def cut_in(self) -> None:
        """While somebody waits for the store's lock, whatever is due soon may come first."""
        steady = self._world.clock.steady()
        ways = [way for way in self._ways if way[0] <= steady + SOON]
        if ways and not self._busy and self._world.faulty and self._world.chance.random() < 0.2:
            self._deliver(ways)

    def _deliver(self, ways: list[tuple[int, int, Letter]]) -> None:
        world, chance = self._world, self._world.chance
        self._ways = [one for one in self._ways if one not in ways]
        letters = [letter for _, _, letter in ways]
        app = chance.choice([world.app, world.stranger])
        self._busy = True
        try:
            if len(letters) == 1 and chance.random() < 0.8:
                named = letters[0].named
                words = [app.answer(named.pop("queue"), named.pop("type"), named.pop("key"), **named)]
            else:
                words = app.answer_many([letter.named for letter in letters])
        except StoreUnavailable:
            for letter in letters:  # that was no acknowledgement
                self._post(letter, chance.uniform(0.05, 4))
            return
        finally:
            self._busy = False
        for letter, word in zip(letters, words, strict=True):
            world.trace(None, f"{letter.job_type} {letter.key} is answered {letter.data} {letter.answer_id}: {word}")
            if chance.random() < 0.08:
                self._post(letter, self._draw_delay())  # acknowledged, and brought again
        self.receipts.append(Receipt(world.answering, letters, words))
        world.notify()

    # -- operators --------------------------------------------------------------------------------------------------
    def tend(self) -> None:
        """An operator looks through the inbox, and gives answers another chance, another key, or throws them away."""
        world, chance = self._world, self._world.chance
        try:
            found = world.app.answers.list("jobs", limit=10_000)
        except StoreUnavailable:
            return
        if not found:
            return
        one = chance.choice([answer for answer in found if answer.state in ("buffered", "late", "conflict")] or found)
        what = chance.choice(["replay", "replay", "rekey", "drop"])
        world.trace(None, f"{what} of answer {one.id} ({one.state}, {one.type} {one.key})")
        to = chance.choice([key for job_type, key in self.keys if job_type == one.type] or [one.key])
        try:
            match what:
                case "replay":
                    world.app.answers.replay(one.id)
                case "rekey":
                    world.app.answers.rekey(one.id, to)
                case _:
                    world.app.answers.drop(one.id)
        except (Conflict, NotFound, StoreUnavailable):
            pass


def stranger(app: Hipq, clock: Clock) -> Hipq:
    """A program that brings answers and knows nothing of the job types."""
    other = Hipq(app.name, app.url, clock=clock)
    other.queue("jobs")
    return other


def draw_request(seed: int, marker: str, attempt: int, job_type: str) -> Request:
    """What a handler does in this attempt, the same whenever it is asked."""
    draw = random.Random(f"{seed}/request/{marker}/{attempt}")
    kind = draw.choices(["wait", "error", "ok", "failed", "again"], [78, 10, 4, 4, 4 if attempt < 20 else 0])[0]
    kind = "ok" if marker.endswith(BRIEF) else kind
    taken = draw.choice([f"other{draw.randrange(3)}", f"shared{draw.randrange(4)}"])  # perhaps: by a wait, by a job
    key = draw.choices(["", f"{marker}.{attempt}", taken], [78, 14, 8])[0]
    return Request(
        kind,
        key if job_type != LETTER or draw.random() < 0.5 else "",
        draw.choice([None, draw.uniform(1, 30), draw.uniform(1, 30)]),
        draw.uniform(2, 15) if draw.random() < 0.3 else None,
        draw.choices(["", "ok", "failed", "again"], [76, 8, 8, 8])[0],
    )


class Request(NamedTuple):
    kind: str
    key: str
    timeout: float | None
    heartbeat: float | None
    on_timeout: str


ASKING = (ASK, LETTER, FENCED)
