"""What a seed makes of the queue: its limits, lanes, windows, schedule, throttler. Every second seed has none of it.

Every third has jobs that wait for answers, with rules and without. Every sixth is a daemon's, with tenants.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from hipq.job.answer import DEFAULT_KEEPING, Keeping
from hipq.job.when import SECOND
from hipq.job.windows import Window, window
from hipq.limits.handlers import PerHandler
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.limits.rate import Rate, rate
from hipq.limits.rules import AnyLimit
from hipq.limits.share import share
from hipq.limits.tenants import PerTenant
from hipq.testing.clock import START

LANES: Final = ("east", "north", "west")
TENANTS: Final = ("ada", "bob", "cyd")
URGENT: Final = "urgent"
"""The job type that limits do not count."""
ERRAND: Final = "errand"
"""A job type of light jobs, where some engines have no code for the others."""
ASK: Final = "ask"
"""A job type that asks the world outside, and looks at the answers;"""
LETTER: Final = "letter"
"""one whose answer is its result;"""
FENCED: Final = "fenced"
"""and one that takes answers to its present attempt only."""
_DAY: Final = 86_400
_LAST_MINUTE: Final = 1_439


@dataclass(frozen=True)
class Scene:
    start: int = START
    faulty: float = 60.0
    """Seconds of simulated time with faults."""
    ruled: bool = False
    """There is more than the plain queue, and somebody changes its rules while it runs."""
    limits: tuple[AnyLimit, ...] = ()
    lanes: tuple[str, ...] = ()
    turns: str = "ordered"
    jobs: int = 40
    heaviest: int = 1
    fractions: bool = False
    """Jobs count as tenths of units, too."""
    light: float = 0.0
    """How many of them are light in any case."""
    windows: tuple[tuple[Window, ...], ...] = ()
    most_running: int = 0
    """What the code throttler lets run at a time; 0 = there is no throttler."""
    rejects: float = 0.0
    page: int = 500
    """How many jobs it is shown at a time."""
    slow: float = 0.0
    """How often it takes long."""
    withdrawn: bool = False
    """Engines that start late have code without it."""
    missed: str = ""
    """What the schedule does about missed ticks; "" = there is no schedule."""
    overlap: bool = False
    cron_factor: int = 1
    lacking: tuple[str, ...] = ()
    """The job type that each engine but the first has no code for."""
    steps: int | None = None
    """How often the calendar is set; None = as chance has it."""
    answers: bool = False
    """There are jobs that wait for answers;"""
    keeping: Keeping = DEFAULT_KEEPING
    unread: bool = False
    """and an engine that has no code for some of them."""
    tenants: tuple[str, ...] = ()
    """Engines serve whatever there is, as those of a daemon do, for these tenants; none = they serve the types they
    have code for."""

    @property
    def plain_asks(self) -> bool:
        """Jobs that wait for answers are light: where code is lacking, the bound on what passes heavy ones is vague."""
        return self.unread or bool(self.lacking)


def scene_of(seed: int) -> Scene:
    if seed % 6 == 4:
        return _daemon(random.Random(f"daemon {seed}"))
    scene = _ruled(seed) if seed % 2 else Scene()
    return _answered(scene, random.Random(f"answers {seed}")) if seed % 3 == 2 else scene


def _daemon(chance: random.Random) -> Scene:
    quotas = PerTenant({"ada": chance.randrange(1, 4), "cyd": 3})
    handlers = PerHandler({"ada/work": chance.randrange(1, 3), "ada/mend": 1, "bob/send": 2})
    limits: list[tuple[AnyLimit, ...]] = [(), (quotas,), (per_lane(2),), (limit(8), quotas), (quotas, handlers)]
    return Scene(tenants=TENANTS, limits=chance.choice(limits))


def _answered(scene: Scene, chance: random.Random) -> Scene:
    keeping = Keeping(
        chance.choice([8.0, 40.0, DEFAULT_KEEPING.answer_ttl]),
        chance.choice([0.0, 2.0, 15.0, DEFAULT_KEEPING.early_window]),
        chance.choice([5.0, 40.0, DEFAULT_KEEPING.answer_memory]),
    )
    return replace(scene, answers=True, keeping=keeping, unread=chance.random() < 0.3, jobs=min(scene.jobs, 40))


def _ruled(seed: int) -> Scene:
    chance = random.Random(f"scene {seed}")
    minute = chance.choice([_LAST_MINUTE, chance.randrange(_LAST_MINUTE)])
    limits = draw_limits(chance)
    throttled = chance.random() < 0.3
    ticks = chance.random() < 0.25
    missed = chance.choice(["one", "all", "skip"]) if ticks else ""
    rated = any(isinstance(one, Rate) for one in limits)
    scene = Scene(
        start=START - START % (_DAY * SECOND) + (minute * 60 + chance.randrange(60)) * SECOND,
        faulty=150.0 if ticks else 60.0,
        ruled=True,
        limits=limits,
        lanes=LANES if chance.random() < 0.7 else (*LANES, "south"),
        turns=chance.choice(["ordered", "fair"]),
        heaviest=chance.choice([1, 2, 3]),
        windows=_windows(minute) if chance.random() < 0.4 else (),
        most_running=chance.randrange(3, 9) if throttled else 0,
        rejects=chance.choice([0.0, 0.1]),
        page=chance.choice([3, 10, 500, 500]),
        slow=chance.choice([0.0, 0.1, 0.4]),
        withdrawn=throttled and chance.random() < 0.25,
        missed=missed,
        overlap=missed == "all" or chance.random() < 0.5,
        cron_factor=chance.randrange(1, 4),
        steps=0 if rated and chance.random() < 0.7 else None,  # a rate is only sure while nobody sets the calendar
        lacking=(chance.choice(["work", ERRAND, URGENT]), chance.choice(["work", ""])) if chance.random() < 0.3 else (),
    )
    fractions = random.Random(f"fractions {seed}").random() < 0.3  # apart: what else is drawn stays as it was
    scene = replace(scene, fractions=fractions)
    return _crowded(scene, chance) if chance.random() < 0.2 else scene


def _crowded(scene: Scene, chance: random.Random) -> Scene:
    """Many light jobs and few heavy ones, which they pass as long as they may."""
    few: list[tuple[AnyLimit, ...]] = [(limit(5),), (limit(4),), (limit(6), per_lane(3)), (per_lane(3),)]
    lacking = ("work", "") if scene.lacking else ()
    return replace(
        scene, limits=chance.choice(few[:2] if lacking else few), lacking=lacking, turns="ordered", jobs=100,
        heaviest=3, light=0.9, windows=(), most_running=0, withdrawn=False, missed="",
    )  # fmt: skip


def draw_limits(chance: random.Random) -> tuple[AnyLimit, ...]:
    whole, some, parts = limit(chance.randrange(4, 11)), per_lane(chance.randrange(2, 5)), _shares(chance)
    starts = rate(chance.randrange(3, 9), per=chance.choice([0.5, 2, 10]))
    return chance.choice(
        [
            (), (whole,), (some,), (whole, some), (whole, parts), (whole, parts), (starts,), (starts,), (whole, starts),
            (some, starts), (whole, parts, starts), (whole, some, parts, starts),
        ]
    )  # fmt: skip


def _shares(chance: random.Random) -> AnyLimit:
    if chance.random() < 0.5:
        return share({"east": 40, "north": 30, "west": 30})
    return share({"east": 40}, other=50)


def _windows(minute: int) -> tuple[tuple[Window, ...], ...]:
    """Three sets that open and close while the jobs run, the second the other way round than the first, and after a
    while stay open. From the last minute of the day on, they lie over midnight."""
    odd, even = range(minute, minute + 20, 2), range(minute + 1, minute + 20, 2)
    last = _between(minute + 20, minute + 300)
    return (
        (*(_between(at, at + 1) for at in odd), last),
        (*(_between(at, at + 1) for at in even), last),
        (_between(minute - 30, minute + 1), _between(minute + 3, minute + 200)),
    )


def _between(opens: int, closes: int) -> Window:
    return window(_clock(opens), _clock(closes))


def _clock(minute: int) -> str:
    return f"{minute // 60 % 24:02}:{minute % 60:02}"
