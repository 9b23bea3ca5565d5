"""I9, with real processes and real kills: at every commit what is held is within every limit, and limits are used."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hipq import Hipq
from hipq.job.units import UNIT
from tests.crash import audit
from tests.crash.checks import check_all_done, ran, unfinished
from tests.crash.program import LIMIT, SHARES, make_limited, make_throttled
from tests.crash.workers import Workers, eventually

KILLS = 20
FACTORS = [0.1, 0.5, 1, 1, 2, 2.4, 3]
MOST = LIMIT * UNIT


@pytest.fixture
def app(url: str, tmp_path: Path) -> Iterator[Hipq]:
    app = make_limited(url, tmp_path)
    app.migrate()
    yield app
    app.close()


def add(app: Hipq, chance: random.Random, count: int) -> list[int]:
    work, waits, urgent = app.queues[0].job_types
    kinds = chance.choices([work, waits, urgent], [7, 2, 1], k=count)
    return [kind.enqueue(lane=chance.choice([*SHARES]), throttle_factor=chance.choice(FACTORS)) for kind in kinds]


def not_used(commits: list[audit.Held]) -> list[str]:
    """What must happen, and has not yet."""
    full = [held for held in commits if held.all == MOST]
    happened = {
        **{f"{lane} has its share": any(getattr(held, lane) == MOST * percent // 100 for held in commits)
           for lane, percent in SHARES.items()},
        "the limit is full": bool(full),
        "one is urgent while it is": any(held.urgent for held in full),
        "what waits holds something": any(held.waiting for held in commits),
    }  # fmt: skip
    return [what for what, so in happened.items() if not so]


def test_twenty_kills_exceed_no_limit_at_any_commit(app: Hipq, url: str, tmp_path: Path) -> None:
    audit.begin(app)
    chance = random.Random(1)
    ids = add(app, chance, 50)
    with Workers(url, tmp_path, 3, which="limited") as workers:
        for _ in range(KILLS):
            seen = len(ran(tmp_path))
            eventually(lambda seen=seen: len(ran(tmp_path)) > seen, 60, "more jobs run")  # type: ignore[misc]
            time.sleep(chance.random() * 0.1)
            workers.kill(chance.randrange(3))
            ids += add(app, chance, 8)
        while (unused := not_used(audit.log(app))) and len(ids) < 1000:  # some of it happens by chance
            eventually(lambda: unfinished(app) < 50, 120, "jobs end")
            ids += add(app, chance, 8)
        eventually(lambda: unfinished(app) == 0, 120, "every job is final")
    assert not unused
    commits = audit.log(app)
    assert [held for held in commits if held.all > MOST] == []
    for lane, percent in SHARES.items():
        assert [held for held in commits if getattr(held, lane) > MOST * percent // 100] == []
    assert commits[-1].all == 0
    check_all_done(app, ids, tmp_path)


def test_a_killed_engine_takes_the_ticket_of_its_throttler_along(url: str, tmp_path: Path) -> None:
    app = make_throttled(url, tmp_path)
    app.migrate()
    ids = app.queues[0].enqueue_many("work", range(5))
    with Workers(url, tmp_path, 1, lease=4.0, which="throttled") as workers:
        eventually(lambda: (tmp_path / "asked").exists(), 60, "the throttler is asked")
        workers.start()
        time.sleep(0.5)
        assert not ran(tmp_path), "the other engine asks nobody while the ticket is taken"
        first = workers.processes.pop(0)
        first.kill()
        first.wait()
        eventually(lambda: unfinished(app) == 0, 60, "the other engine asks its own")
    check_all_done(app, ids, tmp_path)
    app.close()
