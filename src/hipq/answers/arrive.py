"""An answer arrives: what a caller hands in becomes a `NewAnswer`, checked whole before anything is stored."""

from __future__ import annotations

from typing import Any, Final

from hipq.errors import Invalid, shown
from hipq.job import names, payload
from hipq.job.answer import Keeping, NewAnswer
from hipq.job.spec import Spec
from hipq.job.when import later

ID_LIMIT: Final = 500


def arrive(
    queue: int,
    job_type: str,
    key: str,
    data: Any,
    now: int,
    *,
    spec: Spec | None = None,
    keeping: Keeping,
    answer_id: str | None = None,
    error: bool = False,
    attempt: int | None = None,
) -> NewAnswer:
    """`spec`: what this program knows of the job type."""
    if not isinstance(error, bool):
        raise Invalid(f"error must be True or False, not {shown(error)}")
    return NewAnswer(
        queue=queue,
        job_type=names.job_type(job_type),
        job_key=names.key(key),
        data=payload.encode(data, "an answer's data"),
        arrived=now,
        early_until=later(now, keeping.early_window),
        remember_until=later(now, keeping.answer_memory),
        keep_until=later(now, keeping.answer_ttl),
        early=round(keeping.early_window * 1e6),
        answer_id="" if answer_id is None else _answer_id(answer_id),
        error=error,
        attempt=0 if attempt is None else names.whole(attempt, "attempt", 1, (1 << 31) - 1),
        fence=spec.fence if spec is not None and spec.fn is not None else None,
    )


def _answer_id(value: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= ID_LIMIT or not value.isprintable():
        raise Invalid(f"an answer_id must have 1 to {ID_LIMIT} characters, all of them printable, not {shown(value)}")
    return value
