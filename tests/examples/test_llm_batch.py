"""examples/llm_batch: every prompt has its answer, paid for once, within the API's limit."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

from tests.examples.running import events, jobs, run

MINUTE = 0.5
REQUESTS = 10
PROMPTS = 100
"""Five batches: to look at each every half hour takes more requests than the rate allows, and must be put off."""


def test_every_prompt_comes_home(tmp_path: Path) -> None:
    printed = run("llm_batch/prompts.py", tmp_path, "--prompts", str(PROMPTS), LLM_HOUR="0.3", LLM_MINUTE=str(MINUTE))
    database = tmp_path / "prompts.db"
    every_prompt_is_answered_or_refused_for_good(database)
    each_answer_is_one_job_and_paid_for_once(printed, database)
    a_batch_that_expired_and_one_that_never_ended_are_made_up_for(printed, database)
    no_minute_has_more_requests_than_the_rate(database)


def every_prompt_is_answered_or_refused_for_good(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT id, prompt, state, answer FROM prompts").fetchall()
    assert len(rows) == PROMPTS
    for job_id, prompt, state, answer in rows:
        wanted = ("failed", "") if "forbidden" in prompt else ("answered", f"{prompt.upper()}!")
        assert (state, answer) == wanted, job_id


def each_answer_is_one_job_and_paid_for_once(printed: str, database: Path) -> None:
    kept = jobs(database, "prompts", "results")
    assert Counter(job.key for job in kept) == Counter(f"prompt-{number}" for number in range(1, PROMPTS + 1))
    assert Counter(job.code for job in kept) == {"ok": 95, "failed": 5}
    assert "answered: 95, twice: 0" in printed


def a_batch_that_expired_and_one_that_never_ended_are_made_up_for(printed: str, database: Path) -> None:
    told = re.search(r"batches: (.*)", printed)
    assert told
    batches = {status: int(count) for count, status in re.findall(r"(\d+) (\w+)", told[1])}
    assert batches["expired"] == 1
    assert batches["cancelled"] >= 1  # on a very slow machine others take too long as well
    submits = [job for job in jobs(database, "prompts", "batches") if job.type == "submit"]
    assert {job.code for job in submits} == {"ok"}
    assert sum(batches.values()) == sum(events(job).count("waits") for job in submits)  # no request began two
    assert any("error" in events(job) for job in submits)  # the 500
    stuck = [job for job in submits if job.data["tries"] > 1]
    assert stuck
    for job in stuck:
        assert {"timed out", "cancel handler ended"} & set(events(job)), job.history


def no_minute_has_more_requests_than_the_rate(database: Path) -> None:
    """A job counts from some moment between the turn that claimed it and the next entry of its history."""
    starts = [
        (claimed["at"], after["at"], job.throttle_factor)
        for job in jobs(database, "prompts", "batches")
        for claimed, after in pairwise(job.history)
        if claimed["event"] == "claimed"
    ]
    assert starts
    for first, _, _ in starts:
        end = first + timedelta(seconds=MINUTE)
        assert sum(units for claimed, after, units in starts if first <= claimed and after < end) <= REQUESTS
