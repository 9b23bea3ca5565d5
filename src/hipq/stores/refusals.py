"""Which of some jobs a database refuses: found by putting in fewer at a time, down to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
