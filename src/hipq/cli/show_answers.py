"""Answers on a terminal, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hipq import Hipq
from hipq.answers.inbox import Replayed
from hipq.cli.show import clock, print_lines, print_table, with_filled
from hipq.job.answer import BUFFERED, LATE, STATES, UNREADABLE, Answer, Answered

_BRIEF: Final = ("number", "queue", "tenant", "type", "key", "state", "job", "copies", "arrived", "keep_until", "id")
_OF_A_JOB: Final = ("number", "state", "arrived", "id")
FEW: Final = 100
"""Answers that are shown with their job, at most."""


def described(app: Hipq, queue: str, answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Answers as JSON can have them, whole. One that is kept for a job which ended meanwhile is late: the inbox says
    buffered as long as nobody has written to it since."""
    ended = _ended(app, {one.job for one in answers if one.job and one.state == BUFFERED})
    return [
        {
            "app": app.name,
            "queue": queue,
            "number": one.id,
            "tenant": one.tenant,
            "type": one.type,
            "key": one.key,
            "state": LATE if one.state == BUFFERED and one.job in ended else one.state,
            "job": one.job or None,
            "copies": one.copies,
            "arrived": one.arrived,
            "keep_until": one.keep_until,
            "id": one.answer_id,
            "error": one.error,
            "attempt": one.attempt or None,
            "note": one.note,
            "data": one.data,
        }
        for one in answers
    ]


def _ended(app: Hipq, jobs: Iterable[int]) -> set[int]:
    """Which of these jobs are final, or even gone."""
    known = set(jobs)
    return known - app.store.tokens(sorted(known)).keys() if known else known


def answers_of(app: Hipq, job: int) -> dict[str, Any]:
    """The first answers of a job, and whether there are more."""
    queue = app.declared.of_job(job).name
    found = described(app, queue, app.answers.list(queue, job=job, limit=FEW + 1))
    brief = [{name: one[name] for name in _OF_A_JOB} for one in found[:FEW]]
    return {"answers": brief, "more_answers": len(found) > FEW}


def print_answers(answers: Sequence[dict[str, Any]]) -> None:
    spare = ("keep_until", "copies", "id", "queue", "tenant")
    print_table(with_filled(_BRIEF, answers), answers, none="answers", spare=spare)


def print_answer(answer: dict[str, Any]) -> None:
    """An answer, line by line."""
    said = {name: answer[name] or None for name in ("number", "app", "queue", "tenant", "type", "key")}
    said |= {"state": f"{answer['state']}: {answer['meaning']}", "note": answer["note"] or None, "job": answer["job"]}
    said |= {"attempt": answer["attempt"], "says": "the work failed" if answer["error"] else None}
    said |= {"id": answer["id"] or None, "copies": answer["copies"], "arrived": clock(answer["arrived"])}
    print_lines(said | {"keep until": clock(answer["keep_until"]), "data": json.dumps(answer["data"])})


def replayed(done: Replayed, queue: str, job_type: str, key: str) -> dict[str, Any]:
    found = {"outcome": done.outcome, "number": done.id, "job": done.job or None}
    return found | {"queue": queue, "type": job_type, "key": key}


def replayed_text(done: Replayed) -> str:
    """What became of an answer that came again, in words; its number is another one now."""
    return f"{done.outcome}: {_became(done)}"


def _became(done: Replayed) -> str:
    now = f"answer {done.id} now"
    match done.outcome:
        case Answered.MATCHED:
            return f"job {done.job} has it ({now})"
        case Answered.BUFFERED:
            return f"kept for job {done.job} ({now})" if done.job else f"{STATES[BUFFERED]} ({now})"
        case Answered.DUPLICATE:
            return f"it is the same as answer {done.id}"
        case Answered.CONFLICT:
            return f"job {done.job} had ended with another one ({now})"
        case Answered.LATE:
            return f"job {done.job} had ended, or was past that attempt ({now})"
        case Answered.UNREADABLE:
            return STATES[UNREADABLE]
