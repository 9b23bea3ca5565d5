"""The routes of jobs, their results and their answers."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, cast

import msgspec

from hipq.daemon.http.job_json import AS_IT_IS, JOB, MAYBE_TEXT, SEED, TEXT, WHOLE, array, brief, typed, whole
from hipq.daemon.http.new_job import read_jobs, read_windows
from hipq.daemon.http.reply import ClientGone, Reply, added, reply, sentence
from hipq.daemon.http.request import first_of, gone
from hipq.daemon.http.routes_table import (
    ID_LIMIT,
    Accepts,
    Call,
    Gives,
    Query,
    Route,
    flag,
    job_type,
    number,
    one_of,
    seconds,
    text,
    when,
)
from hipq.daemon.http.stream import Stream
from hipq.daemon.http.strict_json import strict
from hipq.daemon.jobs import Page
from hipq.errors import Invalid
from hipq.job import names
from hipq.job.answer import BUFFERED, CONFLICT, DUPLICATE, LATE, MATCHED
from hipq.job.model import Row
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.states import CODES, FINAL, PHASES

IDS: Final = typed({"ids": array(TEXT)})
IDEMPOTENCY: Final = text(
    "Idempotency-Key", "The same key with the same body gives the same ids for 24 hours, at every daemon.", 200
)
REASON: Final = text("reason", "Why.", 1000)
PRIORITY: Final = number("priority", "The lower, the earlier; 100 if it is not given.", PRIORITY_MIN, PRIORITY_MAX)


WINDOWS: Final = Query(
    "windows", "Times of day in which they may start, as a JSON array of what NewJob has.",
    {"type": "string", "maxLength": 5000}, read_windows,
)  # fmt: skip


# -- adding ----------------------------------------------------------------------------------------------------------
async def add(call: Call) -> Reply:
    """Requests without surprises do not come this way: see `fast_protocol`."""
    return await call.api.adding.from_call(call)


async def add_jobs(call: Call) -> Reply:
    body = await call.body.read()
    ids, problem = await call.api.adding.all_of(call, await call.reading(read_jobs, body), body)
    if problem is None:
        return added(ids, 201)
    if not ids:
        return problem
    said = msgspec.json.decode(problem.body)
    return reply({**said, "ids": [str(job_id) for job_id in ids]}, problem.status, problem.headers)


# -- looking ---------------------------------------------------------------------------------------------------------
async def list_jobs(call: Call) -> Reply:
    return _page_of("jobs", await call.blocking(call.api.jobs.list, call.tenant, **call.query))


async def list_results(call: Call) -> Reply:
    return _page_of("results", await call.blocking(call.api.jobs.list, call.tenant, state=FINAL, **call.query))


def _page_of(name: str, page: Page) -> Reply:
    return reply({name: [brief(row) for row in page.rows], "next": str(page.next) if page.next else None})


async def get_job(call: Call) -> Reply:
    def look() -> Any:
        row = call.api.jobs.get(call.tenant, call.id)
        return call.api.jobs.seen(row) if call.query.get("view") == "seed" else whole(row, call.api.jobs)

    return reply(await call.blocking(look))


async def output(call: Call) -> Stream:
    await call.body.read()  # there is none, but who goes away is noticed only behind it
    row = await call.blocking(call.api.jobs.get, call.tenant, call.id)
    look = partial(call.blocking, call.api.jobs.seen_again)
    service = call.api.service
    return call.api.stream(service.output.follow(row, look, service.engine.in_flight), call)


async def children(call: Call) -> Reply:
    return _page_of("jobs", await call.blocking(call.api.jobs.children, call.tenant, call.id, **call.query))


async def why(call: Call) -> Reply:
    return reply(await call.blocking(call.api.jobs.why, call.tenant, call.id))


async def result(call: Call) -> Reply:
    """The result of a job that is final; else 202, after so many seconds."""
    wait = call.query.get("wait", 0.0)
    row: Row = await call.blocking(call.api.jobs.get, call.tenant, call.id)
    if row.state != FINAL and wait:
        async with call.staying():
            row = await _ending(call, row, wait)
    if row.state != FINAL:
        return reply({"state": row.state, "phase": row.phase}, 202)
    data = await call.blocking(call.api.jobs.result, row)
    headers = ((b"x-hipq-code", row.code.encode()), (b"x-hipq-exitcode", str(row.exitcode).encode()))
    return Reply(200, data, b"application/octet-stream", headers)


async def _ending(call: Call, row: Row, wait: float) -> Row:
    """The job when it is final; or as it is, when the time is over or the daemon stops. Nobody waits for who has
    gone."""
    ended = call.api.jobs.result_of(call.tenant, call.id, wait)
    async with first_of(ended, gone(call.receive), call.api.stopping.wait()) as (ending, leaving, _):
        if ending.done():
            return cast(Row, ending.result())
        if leaving.done():
            raise ClientGone
        return row


class Cancel(msgspec.Struct, forbid_unknown_fields=True):
    """What may be said when a job is cancelled."""

    reason: str


# -- changing --------------------------------------------------------------------------------------------------------
async def cancel(call: Call) -> Reply:
    reason = call.query.get("reason") or await _said_reason(call)
    call.details["reason"] = reason
    row = await call.blocking(call.api.jobs.cancel, call.tenant, call.id, reason)
    return reply(brief(row))


async def _said_reason(call: Call) -> str:
    """What the body says: the reason as text, or JSON that has one."""
    body = (await call.body.read()).strip()
    if not body:
        return ""
    if call.kind != "application/json":
        try:
            return str(REASON.read(body.decode()))
        except UnicodeDecodeError:
            raise Invalid("the reason is not UTF-8 text") from None
    try:
        return str(REASON.read(msgspec.convert(await call.reading(strict, body), Cancel).reason))
    except msgspec.ValidationError as error:
        raise Invalid(f"this is no reason to cancel a job: {error}") from None


async def retry(call: Call) -> Reply:
    return reply(brief(await call.blocking(call.api.jobs.retry, call.tenant, call.id)))


_ANSWERS: Final = {
    MATCHED: (200, ""),
    DUPLICATE: (200, ""),
    BUFFERED: (202, ""),
    CONFLICT: (409, "another answer has come for this job already"),
    LATE: (410, "the job this answers has ended already"),
}
"""For each outcome of an answer its status, and why it is not taken."""


async def answer(call: Call) -> Reply:
    body = await call.body.read()
    key = call.params["key"]
    async with call.api.gate.answering(
        call.tenant, len(body), lambda: call.blocking(call.api.jobs.is_awaited, call.tenant, call.type, key)
    ):
        outcome = await call.blocking(
            call.api.jobs.answer, call.tenant, call.type, key, body, answer_id=call.header(b"idempotency-key"),
            **call.query,
        )  # fmt: skip
    status, problem = _ANSWERS[outcome]
    return sentence(status, problem, answer=outcome) if problem else reply({"answer": outcome}, status)


# -- the table -------------------------------------------------------------------------------------------------------
AFTER: Final = number("after", "Ids above this one only: `next` of the page before.", 0, ID_LIMIT)
LIMIT: Final = number("limit", "How many; 100 if it is not given.", 1, 1000)
OCTETS: Final = {"type": "string", "format": "binary"}
NEW_JOB: Final = {"$ref": "#/components/schemas/NewJob"}


_WHY: Final = typed({"reason": TEXT, "sentence": TEXT, "details": {"type": "object"}})
_ANSWERED: Final = typed({"answer": TEXT})
_ACCEPTED: Final = Gives(202, "The job is accepted, and not stored yet.", AS_IT_IS)


def _page(name: str) -> dict[str, Any]:
    return typed({name: array(JOB), "next": MAYBE_TEXT})


ROUTES: Final = (
    Route(
        "POST", "/{client}/job/{type}/add", add,
        "Add jobs. The body has one payload a line; or it is a JSON array (strings as they are, anything else as "
        "compact JSON; what is no array is one job); or it is byte-counted binary: for each payload its number of "
        "bytes, a newline, the bytes, a newline.",
        (Gives(200, "The ids, in order.", IDS),),
        Accepts({"text/plain": {"type": "string", "minLength": 1}, "application/json": {},
                 "application/octet-stream": OCTETS}),
        (when("dt", "Not before this moment: ISO 8601 with a time zone, or seconds since 1970."), PRIORITY,
         text("key", "The job's key, if it is one job.", names.KEY_LIMIT),
         job_type("then", "The type of a job that is added with the result of each, once it is ok."), WINDOWS),
        (IDEMPOTENCY,), refuses=(409, 422, 429, 507), adds=True,
    ),
    Route(
        "POST", "/v1/{client}/jobs", add_jobs,
        "Add a job, or an array of them. If some of an array cannot be added, the reply says why, and has the ids of "
        "those before it that were.",
        (Gives(201, "The ids, in order.", IDS),),
        Accepts({"application/json": {"oneOf": [NEW_JOB, {"type": "array", "items": NEW_JOB, "minItems": 1}]}}),
        headers=(IDEMPOTENCY,), refuses=(409, 422, 429, 507), adds=True,
    ),
    Route(
        "GET", "/v1/{client}/jobs", list_jobs, "List jobs, live and final, in the order of their ids.",
        (Gives(200, "A page of jobs.", _page("jobs")),),
        query=(job_type("type", "Of this type."), one_of("state", "In this state.", *PHASES),
               one_of("phase", "In this phase.", *sorted({phase for some in PHASES.values() for phase in some})),
               one_of("code", "Ended like this.", *CODES[1:]),
               text("key", "With this key.", names.KEY_LIMIT), AFTER, LIMIT),
    ),
    Route(
        "GET", "/v1/{client}/jobs/{id}", get_job, "Look at a job: all there is to know of it.",
        (Gives(200, "The job.", {"anyOf": [WHOLE, SEED]}), _ACCEPTED),
        query=(one_of("view", "seed: id, type, dt, lock, data, create_dt and done_dt only.", "seed", "whole"),),
    ),
    Route(
        "POST", "/v1/{client}/jobs/{id}/cancel", cancel, "Cancel a job. Its handler is told, if it runs.",
        (Gives(200, "The job as it is now.", JOB),),
        Accepts({"application/json": {"type": "object", "required": ["reason"], "additionalProperties": False,
                                      "properties": {"reason": REASON.schema}},
                 "text/plain": REASON.schema}, required=False),
        query=(REASON,), refuses=(409,),
    ),
    Route(
        "POST", "/v1/{client}/jobs/{id}/retry", retry, "Run a job that waits for its time, or for its retry, now.",
        (Gives(200, "The job as it is now.", JOB),), refuses=(409,),
    ),
    Route(
        "GET", "/v1/{client}/jobs/{id}/why", why, "Say why a job does not run.",
        (Gives(200, "What keeps it.", _WHY), _ACCEPTED),
    ),
    Route(
        "GET", "/v1/{client}/jobs/{id}/children", children, "List the jobs that the handler of a job has added.",
        (Gives(200, "A page of jobs.", _page("jobs")), _ACCEPTED), query=(AFTER, LIMIT),
    ),
    Route(
        "GET", "/v1/{client}/jobs/{id}/result", result,
        "Get the result of a job. X-Hipq-Code and X-Hipq-Exitcode say how it ended.",
        (Gives(200, "The result, as the handler gave it.", OCTETS, "application/octet-stream"),
         Gives(202, "It is not final yet.", AS_IT_IS)),
        query=(seconds("wait", "Seconds to wait for it.", 60),),
    ),
    Route(
        "GET", "/v1/{client}/jobs/{id}/output", output,
        "Follow what a job's handler prints, as server-sent events: what its runs have printed until now, what it "
        "prints while it runs, and how it ended. Of a run at another daemon it is told when that has ended.",
        (Gives(200, "Events, until the job ends or you leave.", None, "text/event-stream"), _ACCEPTED),
    ),
    Route(
        "POST", "/v1/{client}/answers/{type}/{key}", answer, "Bring the answer to the job that has this key.",
        (Gives(200, "It found its job, or had come already.", _ANSWERED),
         Gives(202, "It is kept until its job waits for it.", _ANSWERED)),
        Accepts({"application/json": {}, "text/plain": {"type": "string"}}, required=False),
        (flag("error", "true: the other side has failed."),
         number("attempt", "The attempt it answers; 0: whichever it is.", 0, 1_000_000)),
        (IDEMPOTENCY,), refuses=(409, 410, 413, 429), adds=True,
    ),
    Route(
        "GET", "/v1/{client}/results", list_results, "List the jobs that have ended, in the order of their ids.",
        (Gives(200, "A page of them.", _page("results")),),
        query=(job_type("type", "Of this type."), one_of("code", "Ended like this.", *CODES[1:]),
               AFTER, LIMIT),
    ),
)  # fmt: skip
