"""Which of some jobs a database refuses: found by putting in fewer at a time, down to one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec.structs import replace

from hipq.errors import DuplicateKey, HipqError, StoreError, StoreRefused
from hipq.job.model import New

Given = Sequence[tuple[int, New]]
"""Jobs, with their ids."""


def refusals(
    jobs: Given, put: Callable[[Given], None], translated: Callable[[Exception], StoreError]
) -> dict[int, str]:
    """Why, by id. `put` stores some, in a transaction that is undone later; if it raises, none of these."""
    try:
        put(jobs)
    except Exception as error:
        found = error if isinstance(error, HipqError) else translated(error)
        if not isinstance(found, (StoreRefused, DuplicateKey)):
            raise
        if len(jobs) == 1:
            return {jobs[0][0]: str(found)}
    else:
        return {}
    half = len(jobs) // 2
    return refusals(jobs[:half], put, translated) | refusals(jobs[half:], put, translated)


UNCHOSEN: Final = "\x1f"
"""At the end of a key: no user's key has it."""


def renamed(jobs: Sequence[tuple[int, New]], added: Collection[int]) -> list[tuple[int, New]]:
    """Of jobs that came with their ids those that could not be added, since somebody chose such an id as a key: their
    ids are promised, so they get keys that nobody can choose, since they cannot be printed."""
    return [(job_id, replace(job, job_key=f"{job_id}{UNCHOSEN}")) for job_id, job in jobs if job_id not in added]


def taken(ids: Sequence[int]) -> StoreRefused:
    return StoreRefused(
        f"{len(ids)} jobs of a journal have ids that other jobs have, {ids[0]} for one: this is not the database they "
        "were accepted for, or it is as it was before"
    )
