"""The programs that are killed at every step of an answer's life: `python -m tests.crash.answering play|soak JSON`.

`play` has a case for each step. A case is three processes: one that adds the jobs, an engine, and one that brings the
answers as a broker's client does: again and again until they are acknowledged. One of the two dies by SIGKILL where the
case says, once, and is started again. Whatever code does outside is a line in the file `effects`, and every answer that
was acknowledged one in `acks`.

All are forked from this one, which has nothing open: that costs milliseconds, and a process half a second.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

import hipq.engine.executor  # what processes would import one by one, each for itself
import hipq.engine.loop
import hipq.stores.mariadb.store
import hipq.stores.postgres.store
import hipq.stores.sqlite.store  # noqa: F401
from hipq import Failed, Hipq, Job, Ok, Progress, Retry, Wait
from hipq.answers import inbox
from hipq.job.model import Row
from hipq.stores.filters import Filter
from hipq.stores.mariadb.connection import Session

AT_ONCE: Final = 12
PATIENCE: Final = 120.0
LEASE: Final = 1.0
KILLS: Final = 6
"""The fewest that make a soak."""
LONG: Final = 600.0
WHOLE: Final = "."
"""How a line of a note ends."""


class Case(NamedTuple):
    """A step to die at, what leads there, and what it may cost."""

    step: str
    bring: str = "waiting"
    """When answers are brought: when the job is in this phase, when it has "requested", when somebody was "killed"."""
    type: str = "charge"
    timeout: float = LONG
    """Of the wait."""
    answers: tuple[str, ...] = ("end",)
    apart: bool = False
    """The second is brought when the job waits again."""
    keys: int = 1
    """Jobs; more than one are answered in one call."""
    cancel: bool = False
    pause: float = 0.0
    """Seconds its code takes."""
    dies: str = "engine"
    requests: tuple[int, ...] = (1,)
    """How often the request may have been sent;"""
    looks: tuple[int, ...] = (1,)
    """how often the last answer was looked at;"""
    progress: tuple[int, ...] = (0,)
    """how often the one before it was;"""
    calls: tuple[int, ...] = (0,)
    """and how often it was called off."""

    @property
    def name(self) -> str:
        more = " (apart)" if self.apart else f" ({self.keys})" if self.keys > 1 else ""
        return f"{self.type}, {self.bring}: {self.step}{more}"

    @property
    def ids(self) -> list[tuple[str, str]]:
        """Keys and ids of its answers, in the order they are brought."""
        return [(f"k{n}", f"{kind}-{n}") for n in range(self.keys) for kind in self.answers]


def data_of(answer_id: str) -> dict[str, str]:
    return {"from": answer_id}


class Scene(NamedTuple):
    """Where a case is played."""

    url: str
    app: str
    folder: str
    case: Case

    def note(self, file: str, *lines: str) -> None:
        """One write, which is there whoever dies after it. Who is killed within it may leave a part of it: that part is
        no line, and does not run into the next one."""
        with open(f"{self.folder}/{file}", "ab", buffering=0) as target:
            target.write("".join(f"\n{line}{WHOLE}" for line in lines).encode())

    def noted(self, file: str) -> list[str]:
        path = Path(self.folder, file)
        lines = path.read_text().split("\n") if path.exists() else []
        return [line.removesuffix(WHOLE) for line in lines if line.endswith(WHOLE)]

    @property
    def killed(self) -> bool:
        return Path(self.folder, "killed").exists()

    def die(self, here: str) -> None:
        if here == self.case.step:
            try:
                os.mkdir(f"{self.folder}/killed")
            except FileExistsError:
                return
            suicide()


def suicide() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Asked ever more rarely: many wait at once, and each look costs as much as a step of a case."""
    end, pause = time.monotonic() + seconds, 0.02
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(pause)
        pause = min(1.3 * pause, 0.25)


# -- the app -----------------------------------------------------------------------------------------------------------
def make_app(scene: Scene) -> Hipq:
    app = Hipq(scene.app, scene.url)
    queue = app.queue("jobs")

    def request(job: Job[Any]) -> Wait:
        scene.die("request: not sent")
        scene.note("effects", f"request {job.key}")
        if scene.case.bring == "requested":
            until(lambda: scene.noted("acks"))  # the answer is faster than the wait
        time.sleep(scene.case.pause)
        scene.die("request: sent")
        wants = job.data
        given_up = Failed("silence") if wants.get("gives_up") else None
        return Wait(timeout=wants["timeout"], on_timeout=given_up)

    def look(_: Job[Any], answer: Any) -> Ok | Progress:
        kind = answer.data["from"].split("-")[0]
        scene.die(f"{kind}: not looked at")
        scene.note("effects", f"look {answer.answer_id}")
        time.sleep(scene.case.pause)
        scene.die(f"{kind}: looked at")
        return Progress() if kind == "progress" else Ok(answer.data)

    def judge(job: Job[Any], _: object) -> Retry:
        scene.die("judge: not asked")
        scene.note("effects", f"judge {job.key}")
        return Retry(LONG)

    def call_off(job: Job[Any]) -> None:
        scene.die("call: not made")
        scene.note("effects", f"call {job.key}")
        scene.die("call: made")

    queue.job("direct", retry=judge)(request)
    queue.job("charge", retry=judge)(request).answered(look)
    called = queue.job("called", retry=judge)(request)
    called.answered(look)
    called.cancelled(call_off)

    @queue.job
    def neighbour(_: Job[Any]) -> str:
        return "innocent"

    return app


class Deadly:
    """A store's verbs, with steps around them and at their COMMIT."""

    def __init__(self, scene: Scene, store: Any) -> None:
        self.scene = scene
        self.turn_of, self.answer_of = store.turn, store.answer
        self.inside: list[str] = []
        """What the transaction under way is about."""
        self.answers = 0
        store.turn, store.answer = self.turn, self.answer

    def at(self, when: str) -> None:
        for what in self.inside:
            self.scene.die(f"{when}: {what}")

    @contextmanager
    def around(self, what: list[str]) -> Iterator[None]:
        self.inside = what
        self.at("before")
        yield
        self.at("returned")
        self.inside = []

    def turn(self, engine_id: int, changes: Any, claims: Any, now: int) -> Any:
        mine = [one for one in changes if one.before.job_type != "neighbour"]
        with self.around([*{what for one in mine for what in (one.event, one.after.phase)}]):
            turned = self.turn_of(engine_id, changes, claims, now)
        for row in turned.won:
            if row.job_type != "neighbour":
                self.scene.die(f"claimed: {row.phase}")
        return turned

    def answer(self, answers: Any, now: int, **more: Any) -> Any:
        self.answers += 1
        with self.around(["answer", f"batch {self.answers}"]):
            return self.answer_of(answers, now, **more)


def at_commits(at: Callable[[str], None]) -> None:
    """In this process, call it when all is written and not committed, and when it is committed and nobody knows."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql != "COMMIT":
                return super().execute(sql, *values)
            at("written")
            done = super().execute(sql)
            at("committed")
            return done

    connect, transaction, run = sqlite3.connect, psycopg.Connection.transaction, Session.run

    @contextmanager
    def watched(conn: Any, *values: Any) -> Iterator[Any]:
        with transaction(conn, *values) as found:
            yield found
            at("written")
        at("committed")

    def watched_run(conn: Any, query: str, *values: Any) -> Any:
        if query != "COMMIT":
            return run(conn, query, *values)
        at("written")
        done = run(conn, query)
        at("committed")
        return done

    patched: Any = sqlite3
    patched.connect = lambda *values, **more: connect(*values, **more, factory=Connection)
    patched = psycopg.Connection
    patched.transaction = watched
    patched = Session
    patched.run = watched_run


def small_batches() -> None:
    patched: Any = inbox
    patched.KEYS_AT_ONCE = 3


# -- the processes of a case -------------------------------------------------------------------------------------------
def deadly_app(scene: Scene) -> Hipq:
    app = make_app(scene)
    at_commits(lambda when: deadly.at(when))
    deadly = Deadly(scene, app.store)
    return app


def adding(scene: Scene) -> None:
    app, case = make_app(scene), scene.case
    app.migrate()
    for n in range(case.keys):
        app.queues[0].enqueue(case.type, {"timeout": case.timeout}, key=f"k{n}")
    app.queues[0].enqueue("neighbour")
    app.close()


def engine(scene: Scene) -> None:
    app = deadly_app(scene)
    app.events.subscribe(lambda _: scene.note("stalls", "the machine was busy for a whole lease"), "lease lost")
    app.run(lease=LEASE, poll=0.2)


def answering(scene: Scene) -> None:
    """Brings what was not acknowledged, as a broker delivers it, and stays until all jobs are final."""
    app, case = deadly_app(scene), scene.case
    small_batches()
    if case.cancel:
        cancel(app, scene)
    if not scene.noted("due"):
        until(lambda: has_come(app, scene, case.bring))
        scene.note("due", "a broker delivers them again whatever has become of the job")
    todo = [(key, answer_id) for key, answer_id in case.ids if answer_id not in acked(scene)]
    if case.keys > 1:
        some = [
            {"queue": "jobs", "type": case.type, "key": key, "data": data_of(answer_id), "answer_id": answer_id}
            for key, answer_id in todo
        ]
        outcomes = app.answer_many(some)
        scene.die("answers: not acknowledged")
        lines = [f"{answer_id} {outcome}" for (_, answer_id), outcome in zip(todo, outcomes, strict=True)]
        scene.note("acks", *lines)
    else:
        for number, (key, answer_id) in enumerate(todo):
            if case.apart and number:
                until(lambda: has_come(app, scene, "waiting") and "look progress-0" in scene.noted("effects"))
            outcome = app.answer("jobs", case.type, key, data_of(answer_id), answer_id=answer_id)
            scene.die("answers: not acknowledged")
            scene.note("acks", f"{answer_id} {outcome}")
            scene.die("answers: acknowledged")
    until(lambda: all(job.state == "final" for job in app.jobs("jobs")))


def cancel(app: Hipq, scene: Scene) -> None:
    until(lambda: has_come(app, scene, "waiting") or scene.killed)
    (job,) = app.jobs("jobs", type=scene.case.type)
    if job.phase == "waiting":
        app.cancel(job.id, "not wanted")


def has_come(app: Hipq, scene: Scene, moment: str) -> bool:
    if moment == "killed":
        return scene.killed
    if moment == "requested":
        return any(line.startswith("request") for line in scene.noted("effects"))
    return all(job.phase == moment for job in app.jobs("jobs", type=scene.case.type))


def acked(scene: Scene) -> dict[str, str]:
    return dict(line.split() for line in scene.noted("acks"))


def reporting(scene: Scene) -> None:
    """What there is in the end; and that after the end nothing changes, whatever comes."""
    app, case = make_app(scene), scene.case
    rows = rows_of(app)
    facts: dict[str, Any] = {"jobs": jobs_of(app), "answers": answers_of(app)}
    if all(job["state"] == "final" for job in facts["jobs"]):
        facts["same"] = [
            app.answer("jobs", case.type, key, data_of(answer_id), answer_id=answer_id) for key, answer_id in case.ids
        ]
        facts["other"] = app.answer("jobs", case.type, "k0", data_of("other"), answer_id="other")
        facts["unchanged"] = rows == rows_of(app)
    facts |= {"effects": scene.noted("effects"), "acks": acked(scene), "died": scene.noted("died")}
    facts["stalls"] = scene.noted("stalls")
    Path(scene.folder, "facts").write_text(json.dumps(facts))


def rows_of(app: Hipq) -> list[Row]:
    return app.store.find(Filter(app.queues[0].number))


def jobs_of(app: Hipq) -> list[dict[str, Any]]:
    names = ("id", "key", "type", "state", "phase", "code", "result", "attempt", "failures")
    found: list[Job[Any]] = []
    while page := app.jobs("jobs", oldest=True, after=found[-1].id if found else 0, limit=1000):
        found += page
    return [
        {name: getattr(job, name) for name in names} | {"events": [entry["event"] for entry in job.history]}
        for job in found
    ]


def answers_of(app: Hipq) -> list[dict[str, Any]]:
    names = ("id", "key", "type", "answer_id", "state", "job", "data", "copies", "note")
    found = list(app.answers.list(limit=10_000))
    return [{name: getattr(answer, name) for name in names} for answer in found]


# -- forked ------------------------------------------------------------------------------------------------------------
def fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(pid: int) -> int | None:
    """How a child ended: its status, below 0 if by a signal; None = not yet."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def whole(work: Callable[[], None]) -> None:
    os.waitpid(fork(work), 0)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def play(scene: Scene) -> None:
    os.mkdir(scene.folder)
    whole(lambda: adding(scene))
    work = {"engine": lambda: engine(scene), "answering": lambda: answering(scene)}
    pids = {role: fork(work[role]) for role in work}
    end = time.monotonic() + PATIENCE
    while len(scene.noted("died")) < 2 and time.monotonic() < end:
        time.sleep(0.03)
        for role, pid in list(pids.items()):
            status = ended(pid)
            if status is not None:
                del pids[role]
                scene.note("died", role if status == -signal.SIGKILL else f"{role} exited {status}")
            if status == -signal.SIGKILL:
                pids[role] = fork(work[role])
    for pid in pids.values():
        kill(pid)
    whole(lambda: reporting(scene))


def play_all(scenes: Sequence[Scene]) -> None:
    """Some at a time."""
    todo, pids = list(scenes), list[int]()
    while todo or pids:
        while todo and len(pids) < AT_ONCE:
            scene = todo.pop(0)
            pids.append(fork(lambda scene=scene: play(scene)))  # type: ignore[misc]
        time.sleep(0.01)
        pids = [pid for pid in pids if ended(pid) is None]


# -- the soak ----------------------------------------------------------------------------------------------------------
class Message(NamedTuple):
    """An answer, and when it is brought, in seconds from the beginning."""

    at: float
    type: str
    key: str
    id: str


class Wanted(NamedTuple):
    """A job, when it is added, and what it waits with."""

    at: float
    type: str
    key: str
    timeout: float = LONG
    gives_up: bool = False


class Plan(NamedTuple):
    jobs: list[Wanted]
    messages: tuple[list[Message], list[Message]]
    """Of each answering process."""


HOWS: Final = ("early", "before its job", "in time", "doubled", "two", "progress", "silent", "too late")


def how(key: str) -> str:
    return HOWS[int(key[1:]) % len(HOWS)]


def plan(seconds: float, count: int, seed: int) -> Plan:
    chance = random.Random(seed)
    found = Plan([], ([], []))
    for n in range(count):
        key, at = f"k{n}", seconds * n / count
        kind, mine, other = how(key), found.messages[n % 2], found.messages[1 - n % 2]
        job_type = chance.choice(["charge", "called"] if kind == "progress" else ["charge", "direct", "called"])
        short = kind in ("silent", "too late")
        found.jobs.append(Wanted(at, job_type, key, 0.2 if short else LONG, kind == "too late"))
        delay = {"early": 0.005, "before its job": -0.3, "silent": 1.0, "too late": 1.5}.get(kind, 0.3)
        delay *= chance.uniform(0.7, 1.3)
        if kind == "progress":
            mine += [Message(at + delay * part, job_type, key, f"progress-{n}-{part}") for part in (1, 2)]
            delay *= 3
        last = Message(at + delay, job_type, key, f"end-{n}")
        mine.append(last)
        if kind == "doubled":
            mine.append(last._replace(at=at + 2 * delay))
            other.append(last._replace(at=at + delay * chance.uniform(0.9, 1.1)))
        if kind == "two":
            other.append(last._replace(at=at + delay * chance.uniform(0.9, 1.1), id=f"end2-{n}"))
    for messages in found.messages:
        messages.sort()
    return found


class Soak(NamedTuple):
    scene: Scene
    seconds: float
    jobs: int
    seed: int
    began: float

    @property
    def now(self) -> float:
        return time.time() - self.began


def producing(soak: Soak) -> None:
    """Is not killed: who adds jobs is not what this is about."""
    app = make_app(soak.scene)
    todo = plan(soak.seconds, soak.jobs, soak.seed).jobs
    while todo:
        due = [one for one in todo if one.at <= soak.now]
        todo = todo[len(due) :]
        for one in due:
            app.queues[0].enqueue(one.type, {"timeout": one.timeout, "gives_up": one.gives_up}, key=one.key)
        time.sleep(0.02)


def bringing(soak: Soak, side: int) -> None:
    """The messages of this side, in their order, each until it is acknowledged: by their places, not by their ids."""
    app = make_app(soak.scene)
    messages = plan(soak.seconds, soak.jobs, soak.seed).messages[side]
    small_batches()
    while (done := len(soak.scene.noted(f"acks{side}"))) < len(messages):
        due = [one for one in messages[done:] if one.at <= soak.now][:8]
        if due:
            some = [
                {"queue": "jobs", "type": one.type, "key": one.key, "data": data_of(one.id), "answer_id": one.id}
                for one in due
            ]
            outcomes = app.answer_many(some)
            lines = [f"{one.key} {one.id} {outcome}" for one, outcome in zip(due, outcomes, strict=True)]
            soak.scene.note(f"acks{side}", *lines)
        time.sleep(0.01)


def quiet(soak: Soak) -> None:
    """Until all jobs are final, or nothing helps."""
    app = make_app(soak.scene)
    try:
        until(lambda: all(job.state == "final" for job in app.jobs("jobs", limit=10_000)))
    except TimeoutError:
        pass  # what is not final is in the report
    facts = {"jobs": jobs_of(app), "answers": answers_of(app), "died": soak.scene.noted("died")}
    facts |= {"effects": soak.scene.noted("effects"), "acks": soak.scene.noted("acks0") + soak.scene.noted("acks1")}
    Path(soak.scene.folder, "facts").write_text(json.dumps(facts))


def soak_it(soak: Soak) -> None:
    chance, scene = random.Random(soak.seed), soak.scene
    os.mkdir(scene.folder)
    whole(lambda: print(*make_app(scene).migrate(), file=sys.stderr))
    soak = soak._replace(began=time.time())
    work: list[Callable[[], None]] = [
        lambda: engine(scene),
        lambda: engine(scene),
        lambda: bringing(soak, 0),
        lambda: bringing(soak, 1),
    ]
    pids = [fork(one) for one in work]
    producer = fork(lambda: producing(soak))
    while soak.now < soak.seconds or len(scene.noted("died")) < KILLS:
        time.sleep(chance.uniform(0.3, 0.6))
        victim = chance.choice([0, 1, 2, 3])
        kill(pids[victim])
        scene.note("died", str(victim))
        pids[victim] = fork(work[victim])
    for pid in (producer, *pids[2:]):
        os.waitpid(pid, 0)
    whole(lambda: quiet(soak))
    for pid in pids[:2]:
        kill(pid)


if __name__ == "__main__":
    what, text = sys.argv[1:]
    gc.freeze()  # else each child copies all there is
    given = json.loads(text)
    if what == "play":
        play_all([Scene(url, app, folder, Case(*case)) for url, app, folder, case in given])
    else:
        url, app, folder, seconds, count, seed = given
        soak_it(Soak(Scene(url, app, folder, Case("", pause=0.03)), seconds, count, seed, 0.0))
