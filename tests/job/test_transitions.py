"""Every move: legal, a new token, an entry in the history, and nothing touched that must not change."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hipq.job import transitions, wait_transitions
from hipq.job.fault import Fault
from hipq.job.model import HISTORY_LIMIT, UNCHANGING, New, Row, blank, numbered, queue_of, remember
from hipq.job.order import ByTime
from hipq.job.run_result import Rerun
from hipq.job.states import PHASES, TRANSITIONS, reachable
from tests.contract.jobs import waits

FAULT = Fault("error", "no")
ORDER = ByTime()
NOW = 2_000_000_000_000_000

READY = blank(New(1, "work", "", "{}", "ready", "5", NOW - 10, NOW - 10), 65537)
RUNNING = transitions.claimed(READY, 3, NOW)
WAITING = waits(RUNNING, NOW + 5, NOW)
ERRORED = transitions.errored(RUNNING, FAULT, 500, NOW)
RETRYING = transitions.retried(ERRORED, Rerun(FAULT, delay=5.0), ORDER, NOW)

MOVED: dict[str, tuple[Row, Callable[[Row], Row]]] = {
    "claimed": (READY, lambda row: transitions.claimed(row, 3, NOW)),
    "claimed again": (RETRYING, lambda row: transitions.claimed(row, 4, NOW)),
    "taken to be judged": (ERRORED, lambda row: transitions.claimed(row, 4, NOW)),
    "succeeded": (RUNNING, lambda row: transitions.succeeded(row, "1", 200, NOW)),
    "refused": (RUNNING, lambda row: transitions.refused(row, FAULT, 400, NOW)),
    "errored": (RUNNING, lambda row: transitions.errored(row, FAULT, 500, NOW)),
    "gave up": (ERRORED, lambda row: transitions.gave_up(row, FAULT, NOW)),
    "retried": (ERRORED, lambda row: transitions.retried(row, Rerun(FAULT, at=NOW + 9, data="1"), ORDER, NOW)),
    "asked again": (RUNNING, lambda row: transitions.asked_again(row, Rerun(FAULT), ORDER, NOW)),
    "outlived": (RUNNING, lambda row: transitions.outlived(row, FAULT, 100, NOW)),
    "waits": (RUNNING, lambda row: waits(row, NOW + 1, NOW)),
    "timed out": (WAITING, lambda row: wait_transitions.timed_out(row, ByTime(), NOW)),
    "given back": (RUNNING, lambda row: transitions.given_back(row, "x", True, NOW)),
    "given back unstarted": (RUNNING, lambda row: transitions.given_back(row, "x", False, NOW)),
    "given back unjudged": (
        transitions.claimed(ERRORED, 4, NOW),
        lambda row: transitions.given_back(row, "x", False, NOW),
    ),
    "rescued": (RUNNING, lambda row: transitions.rescued(row, NOW)),
    "crashed": (RUNNING, lambda row: transitions.crashed(row, FAULT, 500, NOW, has_retry_handler=False)),
    "crashed in a used process": (RUNNING, lambda row: transitions.suspected(row, FAULT, NOW)),
    "crashed when judged": (
        transitions.claimed(ERRORED, 4, NOW),
        lambda row: transitions.crashed_aside(row, FAULT, NOW),
    ),
    "rescued when judged": (transitions.claimed(ERRORED, 4, NOW), lambda row: transitions.rescued(row, NOW)),
    "hurried": (RETRYING, lambda row: transitions.run_now(row, ORDER, NOW)),
    **{
        f"cancelled when {row.phase}": (row, lambda row: transitions.cancelled(row, "x", NOW))
        for row in (READY, RUNNING, WAITING, ERRORED, RETRYING)
    },
}


@pytest.mark.parametrize("name", MOVED)
def test_a_move_is_legal_and_changes_the_token(name: str) -> None:
    before, move = MOVED[name]
    after = move(before)
    assert after.state == before.state or reachable(before.state, after.state)
    assert after.phase in PHASES[after.state]
    assert after.token == before.token + 1
    assert (after.error == "NONE") == (after.state in ("initial", "running") or after.code == "ok")
    assert after.held == (before.throttle_factor if after.phase in ("executing", "waiting") else 0)
    assert all(getattr(after, field) == getattr(before, field) for field in UNCHANGING)
    assert None not in msgspec.structs.astuple(after)


@pytest.mark.parametrize("name", MOVED)
def test_attempt_grows_at_a_claim_and_nowhere_else(name: str) -> None:
    """I5."""
    before, move = MOVED[name]
    grown = move(before).attempt - before.attempt
    assert grown == {"claimed": 1, "claimed again": 1, "given back unstarted": -1}.get(name, 0)


@pytest.mark.parametrize("name", MOVED)
def test_nobody_owns_a_job_that_is_not_in_somebodys_hands(name: str) -> None:
    before, move = MOVED[name]
    after = move(before)
    assert bool(after.owner) == (name in ("claimed", "claimed again", "taken to be judged"))


def test_each_crash_alone_is_a_failure_and_one_among_others_is_not() -> None:
    rescued, suspected = transitions.rescued(RUNNING, NOW), transitions.suspected(RUNNING, FAULT, NOW)
    assert (rescued.suspect, rescued.alone, suspected.alone) == (True, False, True)
    for first in (rescued, suspected):
        assert (first.failures, first.crashes_counted) == (0, 0)
        for judged, counted in ((False, [1, 2, 3]), (True, [1, 1, 1])):
            row = first
            for crash in range(3):
                row = transitions.crashed(transitions.claimed(row, 3, NOW), FAULT, 500, NOW, judged)
                assert (row.state, row.phase, row.failures) == ("error", "deciding", crash + 1)
                assert row.crashes_counted == counted[crash]
                row = transitions.retried(row, Rerun(FAULT), ORDER, NOW)
                assert row.alone, "it goes on running so"


def test_a_retry_handler_may_crash_twice_after_its_job_did() -> None:
    row = transitions.crashed(RUNNING, FAULT, 500, NOW, has_retry_handler=True)
    row = transitions.crashed_aside(transitions.claimed(row, 3, NOW), FAULT, NOW)
    assert (row.state, row.phase, row.failures) == ("error", "deciding", 1)
    row = transitions.crashed_aside(transitions.claimed(row, 3, NOW), FAULT, NOW)
    assert (row.state, row.code, row.failures) == ("final", "error", 1)


def test_a_run_that_came_to_an_end_clears_a_suspect() -> None:
    suspect = transitions.claimed(transitions.rescued(RUNNING, NOW), 3, NOW)
    for after in (transitions.errored(suspect, FAULT, 500, NOW), waits(suspect, NOW, NOW)):
        assert not after.suspect


def test_a_rescued_job_keeps_its_place() -> None:
    after = transitions.rescued(RUNNING, NOW)
    assert (after.rank, after.scheduled_run_time) == (RUNNING.rank, RUNNING.scheduled_run_time)


def test_history_is_bounded_and_says_what_it_left_out() -> None:
    history = "[]"
    for number in range(500):
        history = remember(history, number, "error", error='tricky "at": text')
    entries = msgspec.json.decode(history)
    assert len(entries) <= HISTORY_LIMIT
    assert entries[0]["at"] == 0
    assert entries[-1]["at"] == 499
    left = sum(entry.get("count", 0) for entry in entries if entry["event"] == "left out")
    assert left + len(entries) - 1 == 500


@given(st.integers(1, 2**46), st.integers(1, 65535))
def test_an_id_knows_its_queue(sequence: int, queue: int) -> None:
    job_id = numbered(sequence, queue)
    assert queue_of(job_id) == queue
    assert 0 < job_id < 2**63


def test_there_is_a_move_into_and_out_of_every_state() -> None:
    reached = {move(before).state for before, move in MOVED.values()}
    assert reached == set(TRANSITIONS) - {"initial"}


def test_history_never_goes_backwards() -> None:
    """Processes have clocks of their own: one writes `answered` after another has written `ok` a little later."""
    history = remember("[]", 100, "claimed", by=1)
    history = remember(history, 90, "error", error='{"at":500,"event":"x"} says the text')
    history = remember(history, 95, "again")
    assert [entry["at"] for entry in json.loads(history)] == [100, 100, 100]
