"""Which of some jobs a database refuses: found by adding ever fewer at a time, down to one."""

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
    """The reasons, by id. `put` stores some jobs in a transaction that is undone later; if it raises, it has stored
    none."""
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
"""The end of a key that hipq makes up: no user's key ends with it, since it cannot be printed."""


def renamed(jobs: Sequence[tuple[int, New]], added: Collection[int]) -> list[tuple[int, New]]:
    """The jobs that could not be added because somebody's job has their id as its key. Their ids are promised, so they
    get keys that nobody can choose."""
    return [(job_id, replace(job, job_key=f"{job_id}{UNCHOSEN}")) for job_id, job in jobs if job_id not in added]


def taken(ids: Sequence[int]) -> StoreRefused:
    return StoreRefused(
        f"{len(ids)} jobs of a journal have ids that other jobs have, {ids[0]} for one: this is not the database they "
        "were accepted for, or it is as it was before"
    )
