"""Everything else: who one is, queues, events, metrics, health, and the pages that say what there is."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from hipq.daemon.http import metrics
from hipq.daemon.http.reply import Reply, reply
from hipq.daemon.http.routes_table import Call, Gives, Route, one_of
from hipq.daemon.http.service import HEALTH
from hipq.daemon.http.stream import Stream
from hipq.daemon.ready import PARTS
from hipq.errors import HipqError


async def health(call: Call) -> Reply:
    """For whoever asks, so it says no more than that."""
    status = call.api.service.health()
    return reply({"status": status}, 503 if status == "broken" else 200)


async def show_ready(call: Call) -> Reply:
    """For balancers and people: 503 if what is asked for is not so."""
    found = call.api.service.ready()
    wanted = [call.query["for"]] if "for" in call.query else PARTS
    return reply(found, 200 if all(getattr(found, part) for part in wanted) else 503)


async def whoami(call: Call) -> Reply:
    admin = call.caller.is_admin
    return reply({"tenant": None if admin else call.caller.tenant, "admin": admin})


async def queues(call: Call) -> Reply:
    def look() -> list[dict[str, Any]]:
        waiting: Counter[str] = Counter({one.job_type: one.jobs for one in call.api.jobs.lanes(call.tenant)})
        running: Counter[str] = Counter(call.api.jobs.executing(call.tenant))
        types = sorted({*waiting, *running})
        return [{"type": name, "waiting": waiting[name], "running": running[name]} for name in types]

    return reply({"queues": await call.blocking(look)})


async def events(call: Call) -> Stream:
    await call.body.read()  # there is none, but who goes away is noticed only behind it
    return call.api.stream(call.api.jobs.events.subscribe(call.tenant), call)


async def show_metrics(call: Call) -> Reply:
    try:
        usage = await call.api.usage.of(lambda: call.blocking(call.api.jobs.usage))
    except HipqError:
        usage = {}  # the store is away, which is when somebody looks at the other figures
    text = metrics.page(call.api.counts, call.api.readers.now, usage, call.api.service.health())
    return Reply(200, text, b"text/plain; version=0.0.4; charset=utf-8")


async def show_openapi(call: Call) -> Reply:
    return Reply(200, call.api.description)


async def show_docs(call: Call) -> Reply:
    return call.api.page


_OBJECT: Final = {"type": "object"}
_STATUS: Final = {
    "type": "object",
    "required": ["status"],
    "properties": {"status": {"enum": list(HEALTH)}},
}
_READY: Final = {
    "type": "object",
    "required": [*PARTS, "reasons"],
    "properties": {**{part: {"type": "boolean"} for part in PARTS},
                   "reasons": {"type": "array", "items": {"type": "string"}}},
}  # fmt: skip
_LANE: Final = {"type": "object", "required": ["type", "waiting", "running"]}
_QUEUES: Final = {
    "type": "object",
    "required": ["queues"],
    "properties": {"queues": {"type": "array", "items": _LANE}},
}
_TEXT: Final = {"type": "string"}

ROUTES: Final = (
    Route("GET", "/v1/{client}/queues", queues,
          "List the job types of which jobs can run or do, and how many: up to a thousand.",
          (Gives(200, "The job types.", _QUEUES),), tag="queues"),
    Route("GET", "/v1/{client}/events", events, "Follow what happens to jobs, as server-sent events.",
          (Gives(200, "Events, until you leave.", _TEXT, "text/event-stream"),), tag="queues"),
    Route("GET", "/v1/whoami", whoami, "Say whose token this is.", (Gives(200, "The tenant.", _OBJECT),), who="caller",
          tag="about"),
    Route("GET", "/metrics", show_metrics, "Get figures for Prometheus. This needs an admin's token.",
          (Gives(200, "The figures.", _TEXT, "text/plain"),), who="admin", tag="about"),
    Route("GET", "/health", health, "Say whether the daemon is alive, and how it is. 503: it is about to stop.",
          (Gives(200, "How it is.", _STATUS),), who="anybody", tag="about"),
    Route("GET", "/ready", show_ready, "Say whether the daemon accepts jobs, stores them and runs them. 503: it does "
          "not do all of that, or not what was asked for.", (Gives(200, "It does; what to look at, too.", _READY),),
          query=(one_of("for", "Only this counts.", *PARTS),), who="anybody", tag="about"),
    Route("GET", "/openapi.json", show_openapi, "Get this description.", (Gives(200, "OpenAPI 3.1.", _OBJECT),),
          who="caller", tag="about"),
    Route("GET", "/docs", show_docs, "Read this description.", (Gives(200, "A page.", _TEXT, "text/html"),),
          who="caller", tag="about"),
)  # fmt: skip
