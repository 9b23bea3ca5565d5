"""Simulated lives: a slice in every test run, a thousand in the long one."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from hipq.job.answer import Answered
from tests.planted.__main__ import found_with, is_proof, misfits
from tests.planted.bugs import BUGS
from tests.simulation import Broken, World, simulate
from tests.simulation.audit import check_table
from tests.simulation.daemon import HOG, TYPES
from tests.simulation.scene import TENANTS, scene_of


@pytest.mark.parametrize("block", range(4))
def test_every_invariant_holds_in_every_run(block: int) -> None:
    for seed in range(block * 6, block * 6 + 6):
        world = simulate(seed)
        assert world.jobs.started, "nothing ran: this world proves nothing"
    check_table()


@pytest.mark.long
@pytest.mark.parametrize(("first", "seconds"), [(0, 120), (1, 360)], ids=["plain", "with rules"])
def test_a_thousand_runs(first: int, seconds: int) -> None:
    """Every second world has rules, and more of everything."""
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        worlds = pool.map(_ran, range(first, 2000, 2), chunksize=50)
    assert len(worlds) == 1000
    assert all(worlds)
    assert time.monotonic() - began < seconds


def _ran(seed: int) -> int:
    return len(simulate(seed).jobs.started)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = simulate(7), simulate(7)
    assert first.steps == second.steps
    assert len(first.steps) > 100


FAULTS = (
    "(crash before)", "(crash after)", "(lost)", "(away)", "(slow)", "(stall)", "(full)", "kills its engine", "crashed",
    "is asked to stop", "the calendar is set", "the throttler is asked", "pause", "resume", "set_limit",
    "due ready", "drop_ticket",
    " change_schedules\n", " answer (lost)", " answer (full)", "maintain", "replay of", "rekey of", "drop of",
    " lanes (", " tenants (", ": matched", ": buffered", ": duplicate", ": conflict", ": late",
)  # fmt: skip


def test_the_faults_really_happen() -> None:
    missing = list(FAULTS)
    for seed in range(100, 132):
        steps = "\n".join(simulate(seed).steps)
        missing = [fault for fault in missing if fault not in steps]
        if not missing:
            break
    assert missing == []


def test_every_second_world_has_rules() -> None:
    scenes = [scene_of(seed) for seed in range(200)]
    assert [scene.ruled for scene in scenes[:4]] == [False, True, False, True]
    kinds = {type(one).__name__ for scene in scenes for one in scene.limits}
    assert kinds == {"Limit", "PerLane", "PerTenant", "PerHandler", "Share", "Rate"}
    assert {scene.turns for scene in scenes} == {"ordered", "fair"}
    assert {scene.missed for scene in scenes} == {"", "one", "all", "skip"}
    for part in ("windows", "most_running", "rejects", "slow", "withdrawn", "lacking", "light"):
        assert any(getattr(scene, part) for scene in scenes), part


def test_every_sixth_world_is_a_daemons() -> None:
    scenes = [scene_of(seed) for seed in range(300)]
    assert sum(bool(scene.tenants) for scene in scenes) == 50
    assert {type(one).__name__ for scene in scenes if scene.tenants for one in scene.limits} == {
        "Limit", "PerLane", "PerTenant", "PerHandler",
    }  # fmt: skip
    worlds = [simulate(seed) for seed in (4, 10)]
    lanes = {lane for world in worlds for lane in world.jobs.lanes}
    assert lanes == {f"{tenant}/{job_type}" for tenant in TENANTS for job_type in TYPES} | {f"bob/{HOG}"}


def test_every_third_world_has_answers_with_rules_and_without() -> None:
    scenes = [scene_of(seed) for seed in range(300)]
    asking = [scene for scene in scenes if scene.answers]
    assert len(asking) == 100
    assert sum(scene.ruled for scene in asking) == 50
    assert {scene.unread for scene in asking} == {True, False}
    for part in ("answer_ttl", "early_window", "answer_memory"):
        assert len({getattr(scene.keeping, part) for scene in asking}) > 2, part


def test_answers_go_all_their_ways() -> None:
    """Every end of an answer, and every outcome of an answer handler, is seen in a few worlds."""
    worlds = [simulate(seed) for seed in range(2, 62, 3)]
    words = {word for world in worlds for one in world.outside.receipts for word in one.words}
    assert words == set(Answered) - {Answered.UNREADABLE}
    done = {look.do for world in worlds for look in world.jobs.looked.values()}
    assert done == {"ok", "failed", "retry", "judge", "progress", "extend", "wait", "elsewhere", "raise"}
    assert any(world.outside.late for world in worlds)
    states = {answer.state for world in worlds for answer in world.kept}
    assert states >= {"buffered", "progress", "applied", "settled", "duplicate", "conflict", "late"}
    phases = {moved for world in worlds for moved in world.phases}
    assert phases >= {
        ("waiting", "answered"), ("executing", "answered"), ("deciding", "answered"), ("scheduled", "answered"),
        ("ready", "answered"), ("cancelling", "answered"), ("waiting", "cancelling"), ("waiting", "done"),
        ("answered", "waiting"), ("answered", "done"), ("cancelling", "done"), ("cancelling", "deciding"),
    }  # fmt: skip


def test_a_failure_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "_check", lambda _: 1 / 0)
    with pytest.raises(Broken, match=r"seed 3: ZeroDivisionError[\s\S]*last steps"):
        simulate(3)


QUICK = ("no token check", "rescue by age", "acknowledge before the commit", "waiting jobs do not count",
         "a critical job holds units", "two engines ask at a time", "no tick comes",
         "heads in reverse order", "a wait does not look into the inbox", "the ids of answers are forgotten",
         "a used answer is not marked", "an answer is an attempt", "spare slots are never used",
         "the scheduler does not hear of jobs that were lost")  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_caught(name: str) -> None:
    """The quick ones; `make proof-bugs` runs them all."""
    (bug,) = [bug for bug in BUGS if bug.name == name]
    assert is_proof(bug, found_with(bug))


def test_every_bug_can_be_planted() -> None:
    assert {bug.name: texts for bug in BUGS if (texts := misfits(bug))} == {}
