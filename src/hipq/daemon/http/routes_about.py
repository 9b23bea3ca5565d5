"""Everything else: who one is, queues, events, metrics, health, and the pages that say what there is."""

from __future__ import annotations

from typing import Final

from hipq.daemon.census import COUNTS
from hipq.daemon.http import metrics
from hipq.daemon.http.job_json import MAYBE_MOMENT, MAYBE_TEXT, TEXT, array, typed
from hipq.daemon.http.reply import Reply, reply
from hipq.daemon.http.routes_table import Call, Gives, Route, one_of, text
from hipq.daemon.http.stream import Stream
from hipq.daemon.ready import HEALTH, PARTS
from hipq.daemon.tenancy.tokens import Role, token_json
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
    assert call.caller is not None
    shown = token_json(call.caller.tenant, call.caller.token)
    return reply({"tenant": shown["tenant"], "roles": sorted(call.caller.roles), "token": shown["id"],
                  "name": shown["name"], "expires": shown["expires"]})  # fmt: skip


async def queues(call: Call) -> Reply:
    census = call.api.jobs.census(call.tenant)
    while await call.blocking(census.step):  # others have their turn in between
        pass
    found = [{"type": name, **{one: census.types[name][one] for one in COUNTS}} for name in sorted(census.types)]
    return reply({"queues": found, "more": census.more})


async def events(call: Call) -> Stream:
    await call.body.read()  # there is none, but who goes away is noticed only behind it
    last = call.header(b"last-event-id")
    return call.api.stream(call.api.jobs.events.subscribe(call.tenant, last), call)


async def show_metrics(call: Call) -> Reply:
    _ = call.api.collector  # once, and not in one thread while it is made in another
    try:
        usage = await call.api.usage.of(lambda: call.blocking(call.api.jobs.usage))
    except HipqError:
        usage = {}  # the store is away, which is when somebody looks at the other figures
    return Reply(200, await call.blocking(metrics.page, call.api, usage), b"text/plain; version=0.0.4; charset=utf-8")


async def show_openapi(call: Call) -> Reply:
    return Reply(200, call.api.description)


async def show_docs(call: Call) -> Reply:
    return call.api.page


_TRUE: Final = {"type": "boolean"}
_STATUS: Final = typed({"status": {"enum": list(HEALTH)}})
_READY: Final = typed({**dict.fromkeys(PARTS, _TRUE), "reasons": array(TEXT)})
_COUNT: Final = {"type": "integer", "minimum": 0}
_LANE: Final = typed({"type": TEXT, **dict.fromkeys(COUNTS, _COUNT)})
_QUEUES: Final = typed({"queues": array(_LANE), "more": _TRUE})
_WHO: Final = typed({"tenant": MAYBE_TEXT, "roles": array(TEXT), "token": TEXT, "name": MAYBE_TEXT,
                    "expires": MAYBE_MOMENT})  # fmt: skip
_OPENAPI: Final = typed({"openapi": TEXT, "info": {"type": "object"}, "paths": {"type": "object"}})

ROUTES: Final = (
    Route("GET", "/v1/{client}/queues", queues,
          "Count jobs by type. There are those that wait, are scheduled, run, are retried, wait for an answer, and are "
          "done. Of more than 100,000 that live, or that are done, the first are counted, and `more` is true.",
          (Gives(200, "The job types.", _QUEUES),), tag="queues"),
    Route("GET", "/v1/{client}/events", events, "Follow what happens to jobs, as server-sent events.",
          (Gives(200, "Events, until you leave.", TEXT, "text/event-stream"),),
          headers=(text("Last-Event-ID", "The id of the last event that was read: those behind it come first."),),
          tag="queues"),
    Route("GET", "/v1/whoami", whoami, "Say whose token this is, and what it may do. The tenant of "
          "an operator's is null.", (Gives(200, "The tenant and the roles.", _WHO),), who="caller",
          tag="about"),
    Route("GET", "/metrics", show_metrics, "Get figures for Prometheus, of all tenants.",
          (Gives(200, "The figures.", TEXT, "text/plain"),), who="operator", role=Role.METRICS, tag="about"),
    Route("GET", "/health", health, "Say whether the daemon is alive, and how it is. 503: it is about to stop.",
          (Gives(200, "How it is.", _STATUS),), who="anybody", tag="about"),
    Route("GET", "/ready", show_ready, "Say whether the daemon accepts jobs, stores them and runs them. 503: it does "
          "not do all of that, or not what was asked for.", (Gives(200, "It does; what to look at, too.", _READY),),
          query=(one_of("for", "Only this counts.", *PARTS),), who="anybody", tag="about"),
    Route("GET", "/openapi.json", show_openapi, "Get this description.", (Gives(200, "OpenAPI 3.1.", _OPENAPI),),
          who="anybody", tag="about"),
    Route("GET", "/docs", show_docs, "Read this description.", (Gives(200, "A page.", TEXT, "text/html"),),
          who="anybody", tag="about"),
)  # fmt: skip
