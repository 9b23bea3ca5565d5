"""The routes of operators: tenants and their quotas, tokens, the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from hipq.daemon.http.job_json import MAYBE_MOMENT, MAYBE_TEXT, MOMENT, NUMBER, TEXT, array, typed
from hipq.daemon.http.reply import HttpError, Reply, reply
from hipq.daemon.http.routes_table import Accepts, Call, Gives, Query, Route, number, read_moment
from hipq.daemon.http.strict_json import strict
from hipq.daemon.tenancy.tenants import MOST, Quotas, described, tenant_name
from hipq.daemon.tenancy.tokens import ALL_TENANTS, OVERLAP, Role, token_json
from hipq.errors import Invalid, NotFound
from hipq.stores.audit import audit_json

Amount = Annotated[int, Meta(ge=0)] | None
T = TypeVar("T")


class TenantChange(msgspec.Struct, forbid_unknown_fields=True):
    """What a tenant may have; what is left out stays as it is. 0: as much as it likes."""

    weight: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Its share of the work, beside other tenants."""
    waiting: Amount = None
    """Jobs that have not ended, and answers that no job has taken."""
    running: Amount = None
    """Jobs that run at once."""
    bytes: Amount = None
    """Bytes of jobs that have not ended, and of answers that no job has taken."""
    rate: Amount = None
    """Jobs and answers that come in a second, at each daemon."""
    kept: Amount = None
    """Bytes of jobs that have ended, and of handlers."""
    requests: Amount = None
    """Other requests in a second, at each daemon."""


class NewTenant(TenantChange, kw_only=True):
    """A tenant to be added."""

    tenant: Annotated[str, Meta(extra_json_schema={"pattern": "^(?!\\.)[A-Za-z0-9_.]{1,60}$"})]
    """Its name."""
    again: bool = False
    """true: bring back one that was removed, with the jobs that it still has."""


class NewToken(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A token to be made."""

    roles: Annotated[list[str], Meta(min_length=1, extra_json_schema={"items": {"enum": [*map(str, Role)]}})]
    """What it may do."""
    tenant: str | None = None
    """Whose it is; null: an operator's, for all tenants."""
    name: Annotated[str, Meta(max_length=200)] = ""
    """What it is for, or who has it."""
    expires: str | float | None = None
    """From when on it is good for nothing: ISO 8601 with a time zone, or seconds since 1970."""


class Rotation(msgspec.Struct, forbid_unknown_fields=True):
    """How a token is replaced."""

    overlap: Annotated[float, Meta(ge=0, le=31_536_000)] = OVERLAP
    """Seconds for which the old one is still good."""


MODELS: Final = (NewTenant, TenantChange, NewToken, Rotation)
"""What the bodies of these requests are."""


async def read_body(call: Call, model: type[T]) -> T:
    """The body, which may be missing where nothing need be said."""
    body = await call.body.read()
    try:
        return msgspec.convert(await call.reading(strict, body) if body else {}, model)
    except msgspec.ValidationError as error:
        raise Invalid(f"this is no {model.__name__}: {error}") from None


async def _do(call: Call, do: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """In a thread, with what is not there said as it is: operators may know."""
    try:
        found: T = await call.blocking(do, *arguments, **options)
    except NotFound as error:
        raise HttpError(404, str(error)) from None
    return found


# -- tenants ---------------------------------------------------------------------------------------------------------
async def list_tenants(call: Call) -> Reply:
    return reply({"tenants": [described(one) for one in await _do(call, call.api.service.tenants.list)]})


async def add_tenant(call: Call) -> Reply:
    new = await read_body(call, NewTenant)
    given = {name: value or 0 for name, value in _amounts(new).items()}
    weight = given.pop("weight") or 1
    add = call.api.service.tenants.add
    made = await _do(call, add, tenant_name(new.tenant), weight=weight, quotas=Quotas(**given), again=new.again)
    call.details.update(tenant=new.tenant, **given, weight=weight)
    return reply(described(made), 201)


async def get_tenant(call: Call) -> Reply:
    return reply(described(await _do(call, call.api.service.tenants.get, tenant_name(call.params["tenant"]))))


async def change_tenant(call: Call) -> Reply:
    given = {name: value for name, value in _amounts(await read_body(call, TenantChange)).items() if value is not None}
    if not given:
        raise Invalid(f"say what is to change: {', '.join(TenantChange.__struct_fields__)}")
    call.details.update(given)
    return reply(described(await _do(call, call.api.service.tenants.set, call.params["tenant"], **given)))


async def remove_tenant(call: Call) -> Reply:
    name = call.params["tenant"]
    await _do(call, call.api.service.tenants.remove, name)
    return reply({"removed": name})


def _amounts(given: TenantChange) -> dict[str, int | None]:
    return {name: getattr(given, name) for name in TenantChange.__struct_fields__}


# -- tokens ----------------------------------------------------------------------------------------------------------
async def list_tokens(call: Call) -> Reply:
    found = await _do(call, call.api.service.tenants.tokens, call.query.get("tenant", ""))
    return reply({"tokens": found})


async def create_token(call: Call) -> Reply:
    new = await read_body(call, NewToken)
    owner = ALL_TENANTS if new.tenant is None else tenant_name(new.tenant)
    expires = 0 if new.expires is None else read_moment(new.expires, "expires")
    made, secret = await _do(call, call.api.service.tenants.token, owner, new.name, new.roles, expires)
    call.details.update(id=made.id, tenant=new.tenant, name=new.name, roles=new.roles)
    return reply(token_json(owner, made) | {"token": secret}, 201)


async def rotate_token(call: Call) -> Reply:
    tenants, old = call.api.service.tenants, call.params["token"]
    wanted = await read_body(call, Rotation)
    owner, known = await _do(call, tenants.held, old)
    made, secret = await _do(call, tenants.rotate, owner, old, wanted.overlap)
    call.details.update(token=known.label, tenant=owner, id=made.id, overlap=wanted.overlap)
    return reply(token_json(owner, made) | {"token": secret}, 201)


async def revoke_token(call: Call) -> Reply:
    tenants, token = call.api.service.tenants, call.params["token"]
    owner, known = await _do(call, tenants.held, token)
    await _do(call, tenants.revoke, owner, token)
    call.details.update(token=known.label, tenant=owner)
    return reply({"revoked": token})


# -- the audit log ---------------------------------------------------------------------------------------------------
async def audit_log(call: Call) -> Reply:
    limit = call.query.get("limit", 100)
    found = await _do(call, call.api.service.store.audit_log, call.query.get("after", 0), limit + 1)
    entries, more = found[:limit], len(found) > limit
    return reply({"entries": [audit_json(one) for one in entries], "next": entries[-1].id if more else None})


# -- the table -------------------------------------------------------------------------------------------------------
_TENANT: Final = typed({"tenant": TEXT, "weight": NUMBER, **dict.fromkeys(MOST, NUMBER), "made": MOMENT,
                        "tokens": NUMBER})  # fmt: skip
_TOKEN: Final = typed({"id": TEXT, "tenant": MAYBE_TEXT, "name": MAYBE_TEXT, "roles": array(TEXT), "made": MOMENT,
                       "expires": MAYBE_MOMENT, "used": MAYBE_MOMENT})  # fmt: skip
_SECRET: Final = typed({**_TOKEN["properties"], "token": TEXT})
_ENTRY: Final = typed({"number": NUMBER, "at": MOMENT, "who": TEXT, "role": TEXT, "via": TEXT, "address": TEXT,
                       "action": TEXT, "target": TEXT, "details": {"type": "object"}})  # fmt: skip
_SHOWN: Final = (Gives(200, "The tenant.", _TENANT),)
_ONCE: Final = (Gives(201, "The token, which is never shown again.", _SECRET),)
_OF: Final = Query("tenant", "Only of this tenant.", {"type": "string", "minLength": 1}, tenant_name)


def json_body(model: type[Any], required: bool = True) -> Accepts:
    return Accepts({"application/json": {"$ref": f"#/components/schemas/{model.__name__}"}}, required)


def _route(method: str, path: str, does: Any, about: str, gives: tuple[Gives, ...], **more: Any) -> Route:
    return Route(method, path, does, about, gives, who="operator", tag="operators", **more)


ROUTES: Final = (
    _route("GET", "/v1/tenants", list_tenants, "List the tenants, and what they may have.",
           (Gives(200, "The tenants.", typed({"tenants": array(_TENANT)})),)),
    _route("POST", "/v1/tenants", add_tenant, "Add a tenant, as yet without a token.",
           (Gives(201, "The tenant.", _TENANT),), accepts=json_body(NewTenant), refuses=(409,)),
    _route("GET", "/v1/tenants/{tenant}", get_tenant, "Look at a tenant.", _SHOWN),
    _route("PATCH", "/v1/tenants/{tenant}", change_tenant, "Change what a tenant may have. Daemons go by it within a "
           "second or two.", _SHOWN, accepts=json_body(TenantChange)),
    _route("DELETE", "/v1/tenants/{tenant}", remove_tenant, "Remove a tenant and all its tokens. Its jobs stay, and "
           "those that wait still run.", (Gives(200, "It is removed.", typed({"removed": TEXT})),)),
    _route("GET", "/v1/tokens", list_tokens, "List tokens: what each may do, and when it was used last.",
           (Gives(200, "The tokens.", typed({"tokens": array(_TOKEN)})),), query=(_OF,)),
    _route("POST", "/v1/tokens", create_token, "Make a token.", _ONCE, accepts=json_body(NewToken), refuses=(409,)),
    _route("POST", "/v1/tokens/{token}/rotate", rotate_token, "Make a token that may do what this one may, which is "
           "good for a while more.", _ONCE, accepts=json_body(Rotation, required=False), refuses=(409,)),
    _route("DELETE", "/v1/tokens/{token}", revoke_token, "Revoke a token. It is good for nothing, at every daemon "
           "within a second.", (Gives(200, "It is revoked.", typed({"revoked": TEXT})),)),
    _route("GET", "/v1/audit", audit_log, "List who changed what, the newest first.",
           (Gives(200, "The entries, and `after` of the next page.",
                  typed({"entries": array(_ENTRY), "next": {"type": ["integer", "null"]}})),),
           query=(number("after", "Entries with a number below this one: `next` of the page before.", 0, 1 << 62),
                  number("limit", "How many; 100 if it is not given.", 1, 1000))),
)  # fmt: skip
