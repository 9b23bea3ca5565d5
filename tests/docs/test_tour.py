"""docs/life-of-a-job.md: it visits every step, and the rows it shows are the rows there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from hipq import Hipq, Job, Wait, fixed
from hipq.engine import rescue
from hipq.engine.launch import Launcher
from hipq.engine.prune import prune
from hipq.engine.settle import settle
from hipq.engine.stage import stage
from hipq.executors.execution import Execution
from hipq.job.model import Row
from hipq.stores.claims import Claim
from hipq.testing.clock import HandClock

ROOT = Path(__file__).parents[2]
TOUR = (ROOT / "docs/life-of-a-job.md").read_text()


def test_the_tour_visits_every_file_of_the_engine_in_the_order_of_the_steps() -> None:
    files = {path.name for path in (ROOT / "src/hipq/engine").glob("*.py")} - {"__init__.py"}
    visited = re.findall(r"\]\(\.\./src/hipq/engine/(\w+\.py)\)", TOUR)
    assert set(visited) == files
    steps = [
        "accept.py",
        "stage.py",
        "tick.py",
        "claim.py",
        "throttle.py",
        "launch.py",
        "settle.py",
        "rescue.py",
        "prune.py",
        "turn.py",
        "loop.py",
    ]
    assert [name for name in visited if name in steps] == steps


def test_each_step_says_what_a_crash_there_means() -> None:
    parts = TOUR.split("\n## ")[1:]
    assert len(parts) == 9
    for part in parts:
        assert re.search(r"\*\*A crash (here|anywhere)", part), part.splitlines()[0]


def test_the_ways_through_the_code_name_what_is_there() -> None:
    trees = [ast.parse(path.read_text()) for path in (ROOT / "src/hipq").rglob("*.py")]
    functions, classes = set[str](), set[str]()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ClassDef):
            classes.add(node.name)
            functions |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            functions.add(node.name)
    ways = re.findall(r"^\*\*(?:From|When) .*?\n\n", TOUR, re.M | re.S)
    assert len(ways) == 3
    for name in re.findall(r"`([\w.]+)`", "".join(ways)):
        assert name in functions | classes, name


class Walk:
    """The steps the loop calls, one by one."""

    def __init__(self, folder: Path) -> None:
        self.clock = HandClock()
        self.app = Hipq("shop", f"sqlite:///{folder}/shop.db", clock=self.clock)
        self.queue = self.app.queue("orders")
        self.charge = self.queue.job(timeout=3600, retry=fixed(60, attempts=2))(_charge)
        self.store = self.app.store
        self.launcher = Launcher(self.store.now, self.clock.steady, lambda _row: self.queue.chained)
        self.seen: list[str] = []

    def look(self, job_id: int) -> None:
        row = self.store.get(job_id)
        assert row is not None
        columns = ("state", "phase", "attempt", "failures", "crashes", "owner", "token")
        self.seen.append(" ".join(f"{name}={getattr(row, name)}" for name in columns))

    def stage(self) -> None:
        assert stage(self.store, self.queue.number, self.clock.now()) == (1, False)

    def claim(self, engine_id: int) -> Row:
        claim = Claim(self.queue.number, ("charge",), 10)
        (row,) = self.store.turn(engine_id, [], [claim], self.clock.now()).won
        return row

    def run(self, row: Row) -> None:
        running = Execution(row, self.charge.spec, self.clock.steady())
        self.launcher.run(running)
        change = settle(running, self.queue.order, self.clock.now())
        assert not self.store.turn(0, [change], [], self.clock.now()).lost


def _charge(job: Job[Any]) -> Wait:
    if job.attempt == 1:
        raise ConnectionError("the bank does not answer")
    return Wait()


_charge.__name__ = "charge"


def test_the_rows_in_the_tour_are_those_of_a_real_walk(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    job_id = walk.charge.enqueue(key="order-17", delay=30)
    walk.look(job_id)
    engine = walk.store.take_lease(120, "first")
    walk.clock.advance(seconds=30)
    walk.stage()
    walk.look(job_id)
    row = walk.claim(engine)
    walk.look(job_id)
    walk.run(row)
    walk.look(job_id)
    walk.clock.advance(seconds=60)
    walk.stage()
    walk.claim(engine)  # and nobody ever settles it
    walk.look(job_id)
    walk.clock.advance(seconds=200)
    changes = rescue.orphans(walk.store, {walk.queue.number: walk.queue.for_engine()}, walk.clock.now())
    assert not walk.store.turn(0, changes, [], walk.clock.now()).lost
    walk.look(job_id)
    engine = walk.store.take_lease(36_000, "second")
    walk.run(walk.claim(engine))
    walk.look(job_id)
    walk.clock.advance(hours=1)
    changes = rescue.overdue(walk.store, walk.queue.number, walk.queue.order, walk.clock.now())
    assert not walk.store.turn(0, changes, [], walk.clock.now()).lost
    walk.look(job_id)
    walk.run(walk.claim(engine))
    walk.look(job_id)
    assert sum(prune(walk.store, walk.queue.number, (walk.clock.now() + 1, 0))) == 1
    assert walk.store.get(job_id) is None
    walk.app.close()
    assert re.findall(r"```row\n(.*)\n```", TOUR) == walk.seen
