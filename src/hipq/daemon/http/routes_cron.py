"""The routes of cron schedules."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from hipq.daemon import payloads
from hipq.daemon.crons import cron_json
from hipq.daemon.http.job_json import MAYBE_MOMENT, NUMBER, TEXT, array, typed
from hipq.daemon.http.new_job import DURATION, payload_of, within
from hipq.daemon.http.reply import HttpError, Reply, reply
from hipq.daemon.http.routes_operators import json_body, read_body
from hipq.daemon.http.routes_table import TYPE, Call, Gives, Route
from hipq.errors import NotFound
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.schedule import Settings


class CronChange(msgspec.Struct, forbid_unknown_fields=True):
    """What is to change of a schedule; what is left out stays as it is."""

    expression: str | None = None
    """Five fields: minute, hour, day of the month, month, day of the week."""
    tz: str | None = None
    """The time zone of the expression; UTC without it."""
    data: Any = msgspec.UNSET
    """What its jobs carry: any JSON, as compact text;"""
    payload: str | msgspec.UnsetType = msgspec.UNSET
    """or text, as it is;"""
    payload_base64: str | msgspec.UnsetType = msgspec.UNSET
    """or bytes."""
    missed: Literal["one", "all", "skip"] | None = None
    """What becomes of ticks nobody was there for: one job for all of them, all, or none."""
    overlap: bool | None = None
    """Whether a tick adds a job while that of the tick before has not ended."""
    priority: Annotated[int, Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)] | None = None
    timeout: Annotated[float, Meta(extra_json_schema=DURATION)] = 0
    paused: bool | None = None
    """Whether it adds nothing; ticks that come meanwhile are skipped."""

    def settings(self) -> Settings:
        payload = payload_of(self)
        if payload is not None:
            payloads.check(payload)
        return Settings(
            expression=self.expression, tz=self.tz, data=None if payload is None else payloads.stored(payload),
            missed=self.missed, overlap=self.overlap, priority=self.priority,
            timeout=within("timeout", self.timeout) or None,
        )  # fmt: skip


class NewCron(CronChange, kw_only=True):
    """A schedule to be added."""

    type: Annotated[str, Meta(extra_json_schema=TYPE)]
    """The type of its jobs."""
    expression: str
    name: Annotated[str, Meta(extra_json_schema={"pattern": f"^$|{TYPE['pattern']}"})] = ""
    """What tells it from others; the type if it is not given."""


MODELS: Final = (NewCron, CronChange)


async def list_crons(call: Call) -> Reply:
    found = await call.blocking(call.api.service.crons.list, call.tenant)
    return reply({"schedules": [cron_json(one) for one in found]})


async def add_cron(call: Call) -> Reply:
    new = await read_body(call, NewCron)
    name, crons = new.name or new.type, call.api.service.crons
    call.details.update(name=name, type=new.type, expression=new.expression)
    made = await call.blocking(crons.add, call.tenant, name, new.type, new.settings(), paused=bool(new.paused))
    return reply(cron_json(made), 201)


async def get_cron(call: Call) -> Reply:
    return reply(cron_json(await _do(call, call.api.service.crons.get)))


async def change_cron(call: Call) -> Reply:
    said = await read_body(call, CronChange)
    settings = said.settings()
    call.details.update({name: value for name, value in settings.said.items() if name != "data"})
    if said.paused is not None:
        call.details["paused"] = said.paused
    return reply(cron_json(await _do(call, call.api.service.crons.change, settings, said.paused)))


async def remove_cron(call: Call) -> Reply:
    await _do(call, call.api.service.crons.remove)
    return reply({"removed": call.params["name"]})


async def run_cron(call: Call) -> Reply:
    crons = call.api.service.crons
    schedule = await _do(call, crons.get)
    async with call.api.gate.entered(call.tenant, 1, crons.size(schedule)):
        return reply({"id": str(await _do(call, crons.run_now))}, 201)


async def _do(call: Call, do: Any, *arguments: Any) -> Any:
    try:
        return await call.blocking(do, call.tenant, call.params["name"], *arguments)
    except NotFound:
        raise HttpError(404, "there is no such schedule") from None


_CRON: Final = typed(
    {"name": TEXT, "type": TEXT, "expression": TEXT, "tz": TEXT, "payload": TEXT, "payload_base64": TEXT,
     "missed": TEXT, "overlap": {"type": "boolean"}, "priority": NUMBER, "timeout": {"type": "number"},
     "paused": {"type": "boolean"}, "last": MAYBE_MOMENT, "next": MAYBE_MOMENT},
    "payload", "payload_base64",
)  # fmt: skip
_ONE: Final = (Gives(200, "The schedule.", _CRON),)
_AT: Final = "/v1/{client}/cron/{name}"


def _route(method: str, path: str, does: Any, about: str, gives: tuple[Gives, ...], **more: Any) -> Route:
    return Route(method, path, does, about, gives, tag="cron", **more)


ROUTES: Final = (
    _route("GET", "/v1/{client}/cron", list_crons, "List the cron schedules of a tenant.",
           (Gives(200, "The schedules.", typed({"schedules": array(_CRON)})),)),
    _route("POST", "/v1/{client}/cron", add_cron, "Add a cron schedule: at each tick a job, once for all daemons.",
           (Gives(201, "The schedule.", _CRON),), accepts=json_body(NewCron), refuses=(409, 429)),
    _route("GET", _AT, get_cron, "Look at a cron schedule.", _ONE),
    _route("PATCH", _AT, change_cron, "Change, pause or resume a cron schedule. Where its ticks are others, they count "
           "from now.", _ONE, accepts=json_body(CronChange), refuses=(409,)),
    _route("DELETE", _AT, remove_cron, "Remove a cron schedule. Jobs that it has added stay.",
           (Gives(200, "It is removed.", typed({"removed": TEXT})),), refuses=(409,)),
    _route("POST", _AT + "/run", run_cron, "Add one job of a cron schedule now. Its ticks stay as they are.",
           (Gives(201, "The job's id.", typed({"id": TEXT})),), refuses=(409, 413, 429)),
)  # fmt: skip
