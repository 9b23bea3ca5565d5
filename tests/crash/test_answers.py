"""kill -9 of who brings answers and of the engine, at every step of an answer's life and at random: no answer is lost.

The steps are in `answering.py`: "before" a transaction, all "written" and not committed, "committed" and nobody knows,
"returned" from the store; "claimed" and not launched; and in handlers, before and after what they do outside.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from hipq import Hipq
from tests import processes
from tests.crash.answering import KILLS, Case, Message, how, plan
from tests.crash.workers import ROOT
from tests.databases import STORES, fresh

SHORT: Final = 0.3
TWICE: Final = (2,)
EITHER: Final = (0, 1, 2)
RENAMED: Final = ("progress", "applied")
"""The state of an answer after which its job went on: the new name, and the old one."""
SAVES: Final = ("before", "written", "committed", "returned")

BRINGING: Final = [
    *(
        Case(step, type=job_type, dies="answering", looks=(0,) if job_type == "direct" else (1,))
        for job_type in ("charge", "direct")
        for step in (*(f"{when}: answer" for when in SAVES), "answers: not acknowledged", "answers: acknowledged")
    ),
    *(Case(f"{when}: answer", "requested", dies="answering") for when in ("written", "committed")),
    *(
        Case(step, keys=8, dies="answering", type=job_type, looks=(0,) if job_type == "direct" else (1,))
        for job_type, step in (
            ("charge", "before: batch 2"),
            ("charge", "written: batch 2"),
            ("direct", "committed: batch 2"),
            ("charge", "answers: not acknowledged"),
        )
    ),
    *(
        Case(f"{when}: cancelled", "done", "called", dies="answering", cancel=True, looks=(0,))._replace(calls=(1,))
        for when in ("written", "committed")
    ),
]
REQUESTING: Final = [
    Case("claimed: executing"),
    Case("request: not sent"),
    Case("request: sent", requests=TWICE),
    Case("request: sent", "requested"),
    Case("request: sent", "killed", requests=(1, 2)),
    *(
        Case(f"{when}: waits", bring, requests=TWICE if bring == "waiting" and when in ("before", "written") else (1,))
        for bring in ("waiting", "requested")  # in the second, the answer is there when the engine is found dead
        for when in SAVES[:3]
    ),
    Case("returned: waits", "requested", type="direct", looks=(0,)),
]
LOOKING: Final = [
    Case("claimed: answered"),
    Case("end: not looked at"),
    Case("end: looked at", looks=TWICE),
    *(Case(f"{when}: ok", looks=TWICE if when in ("before", "written") else (1,)) for when in SAVES),
    *(
        Case(step, answers=("progress", "end"), progress=times, apart=apart)
        for apart in (False, True)
        for step, times in (
            ("progress: not looked at", (1,)),
            ("progress: looked at", TWICE),
            ("before: progress", TWICE),
            ("written: progress", TWICE),
            ("committed: progress", (1,)),
        )
    ),
]
SILENT: Final = [
    *(
        Case(step, bring, timeout=SHORT)
        for bring in ("scheduled", "killed")
        for step in (
            "written: timed out",
            "committed: timed out",
            "claimed: deciding",
            "judge: not asked",
            "written: again",
            "committed: again",
        )
    ),
    *(
        Case(step, "scheduled", "called", SHORT, calls=times)
        for step, times in (
            ("written: cancelling", (1,)),
            ("committed: cancelling", (1,)),
            ("claimed: cancelling", (1,)),
            ("call: not made", (1,)),
            ("call: made", TWICE),
            ("written: cancel handler ended", TWICE),
            ("committed: cancel handler ended", (1,)),
        )
    ),
    *(
        Case(step, "killed", "called", SHORT, calls=EITHER)
        for step in ("written: cancelling", "committed: cancelling", "call: made", "committed: cancel handler ended")
    ),
    *(
        Case(step, "done", "called", cancel=True, looks=(0,), calls=times)
        for step, times in (
            ("claimed: cancelling", (1,)),
            ("call: made", TWICE),
            ("written: cancel handler ended", TWICE),
            ("committed: cancel handler ended", (1,)),
        )
    ),
]
GROUPS: Final = {"bringing": BRINGING, "requesting": REQUESTING, "looking": LOOKING, "silent": SILENT}


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a server one for all cases, each with tables of its own; of SQLite one for each case."""
    if request.param == "sqlite":
        yield ""
    else:
        with fresh(request.param, tmp_path) as url:
            app = Hipq("crash", url)
            app.migrate()
            app.close()
            yield url


def run(what: str, given: Any) -> None:
    processes.run([sys.executable, "-m", "tests.crash.answering", what, json.dumps(given)], cwd=ROOT, check=True)


@pytest.mark.parametrize("group", GROUPS)
def test_a_kill_at_any_step_loses_no_answer(group: str, database: str, tmp_path: Path) -> None:
    cases = GROUPS[group]
    assert len({case.name for case in cases}) == len(cases)
    folders = [tmp_path / f"case_{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(len(cases))]
    urls = [database or f"sqlite:///{folder}/crash.db" for folder in folders]
    run("play", [(url, f.name, str(f), case) for url, f, case in zip(urls, folders, cases, strict=True)])
    wrong = []
    for case, folder in zip(cases, folders, strict=True):
        facts = json.loads((folder / "facts").read_text())
        if found := problems(case, facts):
            wrong.append("\n  ".join([case.name, *found, str(facts)]))
    assert not wrong, "\n".join(wrong)


def problems(case: Case, facts: dict[str, Any]) -> list[str]:
    """What is not as it must be after all is over."""
    found = []
    if Counter(facts["died"]) != {case.dies: 1, "answering exited 0": 1}:
        found.append(f"not one kill of the {case.dies} process, and then all well: {facts['died']}")
    jobs = {job["key"]: job for job in facts["jobs"] if job["type"] != "neighbour"}
    (neighbour,) = [job for job in facts["jobs"] if job["type"] == "neighbour"]
    if (neighbour["code"], neighbour["result"]) != ("ok", "innocent"):
        found.append("the neighbour suffered")
    if facts["acks"].keys() != dict.fromkeys(job_id for _, job_id in case.ids).keys():
        found.append("not every answer was acknowledged")
    for key, job in jobs.items():
        answers = [one for one in facts["answers"] if one["key"] == key]
        found += job_problems(case, job, answers)
        found += effect_problems(case, key, Counter(facts["effects"]), len(facts["stalls"]))
    if facts.get("unchanged") is not True:
        found.append("the job is not final, or was changed after that")
    if {*facts.get("same", ["?"])} != {"duplicate"}:
        found.append("an answer that came again was not known")
    if facts.get("other") != ("late" if case.cancel else "conflict"):
        found.append("another answer after the end was taken for something else")
    return found


def job_problems(case: Case, job: dict[str, Any], answers: list[dict[str, Any]]) -> list[str]:
    ids = [job_id for key, job_id in case.ids if key == job["key"]]
    states = {one["answer_id"]: one["state"].replace(*RENAMED) for one in answers}
    ends = ["late"] if case.cancel else ["applied", "settled"][-len(ids) :]
    found = []
    if len(answers) != len(ids) or states != dict(zip(ids, ends, strict=True)):
        found.append(f"its answers are {states}")
    if {one["job"] for one in answers} != {job["id"]}:
        found.append("its answers are not its own")
    ended = ("final", "cancelled", None) if case.cancel else ("final", "ok", {"from": ids[-1]})
    if (job["state"], job["code"], job["result"]) != ended:
        found.append(f"it is {job['state']} {job['code']} with {job['result']}")
    if job["events"].count("answered") != (0 if case.cancel else len(ids)):
        found.append("it was not given each answer once")
    return found


def effect_problems(case: Case, key: str, effects: Counter[str], stalls: int) -> list[str]:
    """An engine that lost its lease, since this machine let it stand, may do once more what it had done."""
    number = key[1:]
    counted = {
        f"request {key}": case.requests,
        f"look end-{number}": case.looks,
        f"look progress-{number}": case.progress,
        f"call {key}": case.calls,
    }
    return [
        f"{what}: {effects[what]} times"
        for what, allowed in counted.items()
        if not min(allowed) <= effects[what] <= max(allowed) + stalls
    ]


SECONDS: Final = 7.0
JOBS: Final = 400


@pytest.mark.parametrize("seed", [1])
def test_kills_at_random_lose_no_answer_and_apply_none_twice(seed: int, database: str, tmp_path: Path) -> None:
    folder = tmp_path / "soak"
    run("soak", (database or f"sqlite:///{folder}/crash.db", "soak", str(folder), SECONDS, JOBS, seed))
    facts = json.loads((folder / "facts").read_text())
    planned = plan(SECONDS, JOBS, seed)
    assert len(facts["died"]) >= KILLS, "too few kills for a test"
    jobs = {job["key"]: job for job in facts["jobs"]}
    assert len(jobs) == len(facts["jobs"]) == JOBS
    messages = {message.id: message for side in planned.messages for message in side}
    assert {line.split()[1] for line in facts["acks"]} == messages.keys()
    assert sorted(one["answer_id"] for one in facts["answers"]) == sorted(messages), "lost, or kept twice"
    wrong = []
    for key, job in jobs.items():
        mine = [messages[job_id] for job_id in sorted(messages) if messages[job_id].key == key]
        answers = [one for one in facts["answers"] if one["key"] == key]
        if found := soaked(job, mine, answers, facts["effects"]):
            wrong.append("\n  ".join([f"{key}, {how(key)}", *found, str(job), str(answers)]))
    assert not wrong, "\n".join(wrong)
    outcomes = Counter(line.split()[2] for line in facts["acks"])
    assert {"matched", "buffered", "duplicate", "late"} <= outcomes.keys(), "not all of it happened"


def soaked(job: dict[str, Any], mine: list[Message], answers: list[dict[str, Any]], effects: list[str]) -> list[str]:
    """What is wrong with a job and its answers."""
    found = []
    states = Counter(one["state"].replace(*RENAMED) for one in answers)
    steps = [message.id for message in mine if message.id.startswith("progress")]
    if job["state"] != "final":
        return [f"it is {job['phase']}"]
    if states["buffered"] or states["matched"]:
        found.append("it is final and has open answers")
    if {one["job"] for one in answers} != {job["id"]}:
        found.append("its answers are not its own")
    least = 0 if "rescued" in job["events"] else 1  # killed before it sent one, and the answer came all the same
    if not least <= effects.count(f"request {job['key']}") <= job["attempt"]:
        found.append("there were more requests than attempts, or none")
    if how(job["key"]) == "too late" and job["code"] == "failed":
        return found if states == {"late": 1} else [*found, f"it gave up, and its answers are {states}"]
    settled = [one for one in answers if one["state"] == "settled"]
    if len(settled) != 1 or job["code"] != "ok" or job["result"] != settled[0]["data"]:
        return [*found, f"it ended {job['code']} with {job['result']}"]
    last = settled[0]["answer_id"]
    if states["applied"] != len(steps) or states["conflict"] != len(mine) - len(steps) - 1:
        found.append(f"its answers are {states}")
    if job["events"].count("answered") != len(steps) + 1:
        found.append("it was not given each answer once")
    seen = [effects.index(f"look {job_id}") if f"look {job_id}" in effects else -1 for job_id in (*steps, last)]
    if job["type"] != "direct" and (-1 in seen or any(one > following for one, following in pairwise(seen))):
        found.append(f"its answers were looked at out of order, or not at all: {seen}")
    return found
