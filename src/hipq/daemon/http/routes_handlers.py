"""The routes of handlers: short ones, and the same under /v1."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta

from hipq.daemon.handlers.described import described
from hipq.daemon.handlers.handlers import PARTS
from hipq.daemon.http.job_json import MOMENT, NUMBER, TEXT, array, in_json, typed
from hipq.daemon.http.reply import HttpError, Reply, later, reply
from hipq.daemon.http.request import first_of
from hipq.daemon.http.routes_table import Accepts, Call, Gives, Query, Route, flag
from hipq.daemon.http.strict_json import strict
from hipq.errors import Invalid
from hipq.in_thread import in_thread
from hipq.job import names
from hipq.sandbox.handler import LANGUAGES, MOST_SOURCE, Handler, JobReport
from hipq.sandbox.policy import Policy

LEFT: Final = 5.0
"""Seconds that a test may still take when the daemon is to stop."""
NONE_THERE: Final = "there is no handler for this job type"


class NewHandler(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What runs the jobs of a type."""

    lang: Annotated[str, Meta(extra_json_schema={"enum": list(LANGUAGES)})] = ""
    """The language: python, node, php, shell or http."""
    body: Annotated[str, Meta(extra_json_schema={"minLength": 1})] = ""
    """Its source; of http, the URL."""
    eid: Annotated[str, Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_.\\-]{0,200}$"})] = ""
    """Handlers of one tenant with the same engine id share a process."""
    before: str = ""
    """Runs once in each process."""
    beforeEach: str = ""  # noqa: N815 - as JSON spells it
    """Runs before each batch."""
    afterEach: str = ""  # noqa: N815 - as JSON spells it
    """Runs after each batch."""
    waits: bool = False
    """Its status 202 says that a request is out, and the job waits for the answer. Else 202 is ok, like any 2xx."""
    policy: Policy = Policy()
    """How it runs: its limits, its variables and secrets, what it may reach."""

    @property
    def parts(self) -> dict[str, Any]:
        """What was given of it."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}


class HandlerTest(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A job that is run once, to see how it ends."""

    handler: NewHandler | None = None
    """What is to run it; without it, the handler that runs now."""
    payload: str = ""
    payload_base64: str = ""

    @property
    def bytes(self) -> bytes:
        try:
            return b64decode(self.payload_base64, validate=True) if self.payload_base64 else self.payload.encode()
        except ValueError:
            raise Invalid("payload_base64 is not base64") from None


async def set_handler(call: Call) -> Reply:
    """The body is a JSON object; or, with the language in the query, the source itself."""
    lang = call.query.get("method", "")
    body = await call.body.read()
    if not body:
        raise Invalid("the body is empty, and should be a handler")
    if len(body) > 8 * MOST_SOURCE:  # however it is escaped: no need to read it
        raise Invalid(f"a handler may have {MOST_SOURCE:,} bytes of source, and this one has more")
    is_json = call.kind == "application/json" or call.kind.endswith("+json")
    if is_json or not lang:
        given: NewHandler = await call.reading(lambda text: _object(text, lang, is_json=is_json), body)
    else:
        given = NewHandler(lang, _source(body))
    given.waits = call.query.get("waits", given.waits)
    made = await call.blocking(
        call.api.handlers.set, call.tenant, call.type, call.api.service.wrong_with, **given.parts
    )
    call.details["version"] = made.id
    return reply(described(made))


def _object(body: bytes, lang: str, *, is_json: bool) -> NewHandler:
    try:
        found = msgspec.convert(strict(body), NewHandler)
    except Invalid as error:
        more = "" if is_json else "; if it is the source, say its language in the query: ?method=python"
        raise Invalid(f"{error}{more}") from None
    except msgspec.ValidationError as error:
        raise Invalid(f"this is no handler: {error}") from None
    if lang and found.lang and found.lang != lang:
        raise Invalid("the language in the URL's query and the one in the body differ")
    return msgspec.structs.replace(found, lang=found.lang or lang)


def _source(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Invalid("the handler's source is not UTF-8 text") from None


async def delete_handler(call: Call) -> Reply:
    try:
        await call.blocking(call.api.handlers.delete, call.tenant, call.type, **call.query)
    except LookupError:
        raise HttpError(404, NONE_THERE) from None
    return reply({"deleted": call.type})


async def get_handler(call: Call) -> Reply:
    newest = (await _versions(call))[0]
    if newest.deleted:
        raise HttpError(404, NONE_THERE)
    return reply(described(newest))


async def list_handlers(call: Call) -> Reply:
    found = await call.blocking(call.api.handlers.list, call.tenant)
    return reply({"handlers": [described(one) for one in found]})


async def list_versions(call: Call) -> Reply:
    return reply({"versions": [described(one) for one in await _versions(call)]})


async def get_version(call: Call) -> Reply:
    for one in await _versions(call):
        if one.id == call.params["version"]:
            return reply(described(one))
    raise HttpError(404, "this handler has no such version")


async def restore_version(call: Call) -> Reply:
    try:
        found = await call.blocking(call.api.handlers.restore, call.tenant, call.type, call.params["version"])
    except LookupError:
        raise HttpError(404, "this handler has no such version") from None
    return reply(described(found))


async def test_handler(call: Call) -> Reply:
    """A handler that is not kept runs once; or, without one in the body, the one that runs now."""
    body = await call.body.read()
    try:
        given = msgspec.convert(await call.reading(strict, body), HandlerTest)
    except msgspec.ValidationError as error:
        raise Invalid(f"this is no test of a handler: {error}") from None
    if given.handler is None:
        handler = (await _versions(call))[0]
    else:
        handler = await call.blocking(call.api.handlers.made, call.tenant, call.type, given.handler.parts)
    report = await _tried(call, handler, given.bytes)
    jobs = [{"type": jobtype, **in_json("payload", payload)} for jobtype, payload in report.spawned]
    return reply({
        "status": report.status, **in_json("data", report.data), "error": report.error, "log": report.log,
        "crashed": report.crashed, "jobs": jobs, "seconds": round(report.seconds, 6),
    })  # fmt: skip


async def _tried(call: Call, handler: Handler, payload: bytes) -> JobReport:
    async def stopping() -> None:
        await call.api.stopping.wait()
        await asyncio.sleep(LEFT)

    trial = in_thread(lambda: call.api.service.tried(handler, payload))
    async with first_of(trial, stopping()) as (running, _):
        if running.done():
            return cast(JobReport, running.result())
    raise HttpError(503, "the daemon stops, and the test with it: try again", later(5))


async def _versions(call: Call) -> list[Handler]:
    found: list[Handler] = await call.blocking(call.api.handlers.versions, call.tenant, call.type)
    if not found:
        raise HttpError(404, NONE_THERE)
    return found


HANDLER: Final = typed(
    {"id": TEXT, "type": TEXT, "dt": MOMENT, "lang": {"type": "string", "enum": list(LANGUAGES)}, "eid": TEXT,
     **dict.fromkeys(PARTS, TEXT), "waits": {"type": "boolean"}, "policy": {"$ref": "#/components/schemas/Policy"}}
)  # fmt: skip
_SET: Final = (
    "Set the handler of a job type. The body is its source, and method is its language; or it is JSON with eid, lang, "
    "before, beforeEach, body and afterEach."
)
_ACCEPTS: Final = Accepts({
    "application/json": {"$ref": "#/components/schemas/NewHandler"},
    "text/plain": {"type": "string", "minLength": 1},
})  # fmt: skip
_METHOD: Final = (
    Query(
        "method",
        "The language, if the body is the source; empty is as if it was not there.",
        {"type": "string", "enum": ["", *LANGUAGES]},
        lambda said: said and names.one_of(said, "method", LANGUAGES),
    ),
    flag("waits", "true: its status 202 says that the job waits for an answer."),
)
_ONE: Final = (Gives(200, "The handler.", HANDLER),)
_GONE: Final = (Gives(200, "It is deleted.", typed({"deleted": TEXT})),)
_DELETE: Final = (
    "Delete the handler of a job type. Jobs without one are retried until they time out. Its versions are kept, and "
    "one can be brought back."
)
_PURGE: Final = (flag("purge", "true: its versions are not kept, and take no room any more."),)
_GET: Final = "Get the handler of a job type: the version that runs."


_TESTED: Final = typed(
    {"status": NUMBER, "data": TEXT, "data_base64": TEXT, "error": TEXT, "log": TEXT, "crashed": {"type": "boolean"},
     "jobs": array(typed({"type": TEXT, "payload": TEXT, "payload_base64": TEXT}, "payload", "payload_base64")),
     "seconds": {"type": "number"}}, "data", "data_base64",
)  # fmt: skip


def _several(name: str) -> tuple[Gives, ...]:
    return (Gives(200, "The handlers.", typed({name: array(HANDLER)})),)


ROUTES: Final = (
    *(Route("POST", "/{client}/handler/add/{type}" + end, set_handler, _SET, _ONE, _ACCEPTS, _METHOD, tag="handlers")
      for end in ("", "/add")),
    *(Route(method, "/{client}/handler/del/{type}" + end, delete_handler, _DELETE, _GONE, query=_PURGE, tag="handlers")
      for end in ("", "/delete") for method in ("POST", "DELETE")),
    Route("GET", "/{client}/handler/get/{type}", get_handler, _GET, _ONE, tag="handlers"),
    Route("GET", "/v1/{client}/handlers", list_handlers, "List the handlers of a tenant.", _several("handlers"),
          tag="handlers"),
    Route("PUT", "/v1/{client}/handlers/{type}", set_handler, _SET, _ONE, _ACCEPTS, _METHOD, tag="handlers"),
    Route("GET", "/v1/{client}/handlers/{type}", get_handler, _GET, _ONE, tag="handlers"),
    Route("DELETE", "/v1/{client}/handlers/{type}", delete_handler, _DELETE, _GONE, query=_PURGE, tag="handlers"),
    Route("POST", "/v1/{client}/handlers/{type}/test", test_handler,
          "Run a handler once, for a minute at most, with a payload. Nothing is kept: neither the handler, nor what "
          "comes of it. What it asks of other services, it does.", (Gives(200, "How it ended.", _TESTED),),
          Accepts({"application/json": {"$ref": "#/components/schemas/HandlerTest"}}), tag="handlers", refuses=(429,)),
    Route("GET", "/v1/{client}/handlers/{type}/versions", list_versions,
          "List the versions of a handler that are kept, newest first.", _several("versions"), tag="handlers"),
    Route("POST", "/v1/{client}/handlers/{type}/versions/{version}", restore_version,
          "Bring a version of a handler back: it runs from now on. So does one of a handler that was deleted.", _ONE,
          tag="handlers"),
    Route("GET", "/v1/{client}/handlers/{type}/versions/{version}", get_version, "Get one version of a handler.", _ONE,
          tag="handlers"),
)  # fmt: skip
