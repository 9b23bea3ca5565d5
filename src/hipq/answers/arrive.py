"""Turn what a caller hands in into a `NewAnswer`, checked in full before anything is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from msgspec.structs import replace

from hipq.errors import Invalid, shown
from hipq.job import names, payload
from hipq.job.answer import Keeping, NewAnswer
from hipq.job.fault import clean
from hipq.job.spec import Spec
from hipq.job.when import later

ID_LIMIT: Final = 500
REASON_LIMIT: Final = 500
BODY_LIMIT: Final = 1 << 20
"""The most bytes to keep of a message that is not text."""
FIELDS: Final = {"queue", "type", "key", "data", "answer_id", "error", "attempt", "tenant"}


class AnyQueue(Protocol):
    """What an answer needs to know of a queue."""

    name: str

    def arrived(self, job_type: str, key: str, data: Any, **options: Any) -> NewAnswer: ...
    def known(self, job_type: str) -> Spec | None: ...


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
    tenant: str | None = None,
    job: int = 0,
    written: str = "",
) -> NewAnswer:
    """An answer that arrives now. `spec`: what this program knows of the job type. `job`: the very job that the answer
    is for, if that is known. `written`: the data as JSON, if it was checked before: checking is much of the work."""
    if not isinstance(error, bool):
        raise Invalid(f"error must be True or False, not {shown(error)}")
    return NewAnswer(
        queue=queue,
        job_type=names.job_type(job_type),
        job_key=names.key(key),
        data=written or payload.encode(data, "an answer's data"),
        arrived=now,
        early_until=0 if job else later(now, keeping.early_window),
        remember_until=later(now, keeping.answer_memory),
        keep_until=later(now, keeping.answer_ttl),
        early=round(keeping.early_window * 1e6),
        answer_id="" if answer_id is None else _answer_id(answer_id),
        error=error,
        attempt=0 if attempt is None else names.whole(attempt, "attempt", 1, (1 << 31) - 1),
        fence=spec.fence if spec is not None and spec.fn is not None else None,
        job=job,
        tenant="" if tenant is None else names.tenant(tenant),
        shows_late=spec is not None and spec.on_late is not None,
    )


def arrive_many(answers: Iterable[Mapping[str, Any]], queue: Callable[[str], AnyQueue], now: int) -> list[NewAnswer]:
    """The answers that `Hipq.answer_many` is given; Invalid before anything is stored, if one of them is wrong."""
    if not isinstance(answers, Iterable):
        raise Invalid(f"answers must be a list of mappings, not {shown(answers)}")
    news = []
    for one in answers:
        if not isinstance(one, Mapping) or not {"queue", "type", "key"} <= one.keys():
            raise Invalid(f"an answer is a mapping with queue, type, key and data, not {shown(one)}")
        if unknown := one.keys() - FIELDS:
            raise Invalid(f"an answer has no {', '.join(map(str, unknown))}: {', '.join(sorted(FIELDS))}")
        options = {name: value for name, value in one.items() if name not in ("queue", "type", "key", "data")}
        news.append(queue(one["queue"]).arrived(one["type"], one["key"], one.get("data"), now=now, **options))
    return news


def unreadable(
    queue: int, job_type: str, body: bytes, reason: str, now: int, *, keeping: Keeping, answer_id: str
) -> NewAnswer:
    """An answer for a message that names no job or cannot be read. It is kept with the reason, for people to look
    at."""
    known = answer_id if is_answer_id(answer_id) else None
    new = arrive(queue, job_type, "no key", None, now, keeping=keeping, answer_id=known)
    return replace(new, job_key="", data=_readable(body), unreadable=clean(reason)[:REASON_LIMIT])


def _readable(body: bytes) -> str:
    """A message as JSON: the JSON in it, else its text, else its first bytes in base64."""
    readings: tuple[Callable[[bytes], Any], ...] = (payload.parse, bytes.decode)
    for read in readings:
        try:
            return payload.encode(read(body))
        except (Invalid, UnicodeDecodeError):
            pass
    from base64 import b64encode  # hardly ever

    return payload.encode({"base64": b64encode(body[:BODY_LIMIT]).decode(), "bytes": len(body)})


def _answer_id(value: str) -> str:
    if not is_answer_id(value):
        raise Invalid(f"an answer_id must have 1 to {ID_LIMIT} characters, all of them printable, not {shown(value)}")
    return value


def is_answer_id(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= ID_LIMIT and value.isprintable()
