"""`app(service)`: the daemon's HTTP front, an ASGI application.

    route -> method -> token -> tenant -> what the head says -> path, query and body -> the service -> JSON

Whoever calls hears what became of it, or in one sentence why not. Another tenant's things do not exist. Most of what is
added never comes here: see `fast_protocol`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route as Found
from starlette.routing import Router
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from hipq.daemon.http import (
    docs_page,
    openapi,
    routes_about,
    routes_bulk,
    routes_cron,
    routes_handlers,
    routes_jobs,
    routes_operators,
    routes_secrets,
)
from hipq.daemon.http.add import Adding
from hipq.daemon.http.connections import Connections
from hipq.daemon.http.idempotency import Once
from hipq.daemon.http.metrics import Counts, Seldom
from hipq.daemon.http.not_stored_yet import found
from hipq.daemon.http.reply import NOTHING, ClientGone, HttpError, Reply, Send, refusal, sentence
from hipq.daemon.http.request import Limits, Receive, Scope, Shared, check_head, one_each
from hipq.daemon.http.routes_table import Call, Route, check_params
from hipq.daemon.http.stream import Stream
from hipq.daemon.http.wrong_tokens import NoToken, WrongToken, WrongTokens
from hipq.daemon.tenancy.authenticator import Authenticator
from hipq.daemon.tenancy.fair_semaphore import FairSemaphore
from hipq.daemon.tenancy.quotas import Gate
from hipq.observe.auditing import record
from hipq.observe.logs import LogLine

if TYPE_CHECKING:
    from hipq.daemon.daemon import Daemon
    from hipq.daemon.http.operators import OperatorsDashboard
    from hipq.daemon.tenancy.tokens import Caller
    from hipq.observe.prometheus import Collector

ROUTES: Final[tuple[Route, ...]] = (
    *routes_jobs.ROUTES, *routes_bulk.ROUTES, *routes_handlers.ROUTES, *routes_secrets.ROUTES, *routes_cron.ROUTES,
    *routes_operators.ROUTES,
    *routes_about.ROUTES,
)  # fmt: skip
"""All routes there are: one table, from which they are served and described."""
ADD: Final = routes_jobs.ROUTES[0]
"""The route that most requests are for."""
NO_BROWSER: Final = "without tokens nothing is taken from pages in a browser: they may be anybody's"
WRONG_HOST: Final = (
    "without tokens this is for programs that call it by a loopback address: the Host of this request is another"
)
_LOOPBACK: Final = re.compile(rb"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])\.?(:[0-9]{1,5})?", re.IGNORECASE)

REFUSED_SECONDS: Final = 60.0
REFUSED: Final = 10_000
"""Refusals that are remembered."""

_log = logging.getLogger("hipq")


def app(
    service: Daemon, *, tokens: bool = True, limits: Limits | None = None, connections: Connections | None = None,
    proxies: Sequence[str] = (),
) -> Api:  # fmt: skip
    """The front of a daemon. With `tokens=False` whoever can connect may do everything, for every tenant. `proxies` are
    addresses and networks that are believed when they say whom they speak for."""
    return Api(service, tokens, limits or Limits(), connections, proxies)


class Api:
    def __init__(
        self, service: Daemon, tokens: bool, limits: Limits, connections: Connections | None, proxies: Sequence[str]
    ) -> None:  # fmt: skip
        self.service = service
        self.jobs = service.jobs
        self.handlers = service.handlers
        self.use(limits)
        self.readers = Shared(limits.readers, limits.share, "too many follow events or wait for results")
        self.counts = Counts()
        self.connections = connections or Connections()
        self.turns = FairSemaphore(service.store.at_once)
        self.stopping = asyncio.Event()
        self._tokens = tokens
        self._door = Authenticator(service.tenants, tokens=tokens)
        self._dashboard: OperatorsDashboard | None = None
        self._has_no_dashboard = False
        self.usage = Seldom()
        self.gate = Gate(service.tenants, service.backlog, service.ended)
        (queue,) = service.app.queues
        self.adding = Adding(self, self._door, Once(service.store, queue.number, service.app.added), ADD)
        paths = dict.fromkeys(route.pattern for route in sorted(ROUTES, key=_may_be_another))
        self._router = Router(
            [Found(pattern, _Path(self, pattern)) for pattern in paths], redirect_slashes=False, lifespan=self._lifespan
        )  # fmt: skip
        self._router.default = self._nothing
        self._front: Any = ProxyHeadersMiddleware(self._router, list(proxies)) if proxies else self._router  # type: ignore[arg-type]
        self.wrong_tokens = WrongTokens(partial(record, service.store, "api", "nobody", "", "", "wrong tokens", ""))
        self._told = 0.0
        self._refused: dict[tuple[str, str], float] = {}
        """When the audit log was told last that a token has no role for an action."""

    def use(self, limits: Limits) -> None:
        """These count for requests from now on."""
        self.limits = limits
        self.held = Shared(limits.held, limits.share, "too many bodies are in memory")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._front(scope, receive, send)

    @cached_property
    def description(self) -> bytes:
        return openapi.document(ROUTES)

    @cached_property
    def collector(self) -> Collector:
        """What jobs do here, from the first look on: until somebody looks, it costs nothing."""
        from hipq.observe.prometheus import Collector

        return Collector(self.service.app, tenants=self.counts.tenants)

    @cached_property
    def page(self) -> Reply:
        return docs_page.page(ROUTES)

    def stop(self) -> None:
        """Those who follow events, or wait for results, are let go: the daemon is about to stop."""
        self.stopping.set()
        if not self.service.store_away:  # else whoever connects now would wait for that, too
            self.wrong_tokens.close()
        if self._dashboard is not None:
            self._dashboard.stop()

    async def _looked_for_dashboard(self) -> OperatorsDashboard | None:
        """Its pages are read in by a thread, and when somebody asks for one."""
        if self._dashboard is None and not self._has_no_dashboard:
            try:
                operators = await asyncio.to_thread(import_module, "hipq.daemon.http.operators")
            except ModuleNotFoundError:  # Jinja2 is not installed
                self._has_no_dashboard = True
                return None
            self._dashboard = self._dashboard or operators.OperatorsDashboard(self, self._door, tokens=self._tokens)
        return self._dashboard

    # -- one request ------------------------------------------------------------------------------------------------
    async def serve(self, route: Route, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a route that is known."""
        params: Mapping[str, str] = scope.get("path_params", {})
        tenant = params.get("client", "")
        reply: Reply | Stream
        call: Call | None = None
        try:
            headers = one_each(scope["headers"])
            caller = await self.let_in(route, headers, tenant)
            check_head(headers, self.limits)
            check_params(params)
            if route.who == "tenant" and not route.adds:
                self.gate.request(tenant)
            call = Call(self, route, caller, params, headers, scope["query_string"], receive)
            reply = await found(call, self.service.accepted)
            if call.is_change and isinstance(reply, Reply) and reply.status < 400:
                await self._audit(call.caller, route, scope, call.details)
        except ClientGone:
            return
        except NoRole as error:
            await self._audit_refusal(error, route, scope)
            reply = self.refused(route, error)
        except WrongToken as error:
            self.wrong_tokens.add(_address(scope))
            reply = self.refused(route, error)
        except Exception as error:
            reply = self.refused(route, error)
        finally:
            if call is not None:
                call.body.close()
        await self._reply(route, tenant, reply, scope, send)

    async def _reply(self, route: Route, tenant: str, reply: Reply | Stream, scope: Scope, send: Send) -> None:
        if isinstance(reply, Stream):
            self.counts.requests[route.path, 200] += 1
            try:
                with self.reader(tenant):
                    await reply.write(send)
            except HttpError as error:
                await refusal(error).write(send)
            return
        self.count(route, tenant, reply)
        await reply.write(send, head_only=scope["method"] == "HEAD")

    async def let_in(self, route: Route, headers: Mapping[bytes, bytes], tenant: str) -> Caller | None:
        """Whoever calls, None if anybody may; HttpError if they are not let in."""
        if route.who == "anybody":
            return None
        if strange := self.strange(headers):
            raise HttpError(403, strange)
        authorization = headers.get(b"authorization", b"")
        caller = self._door.quickly(authorization) or await self._door.caller(authorization)
        if caller is None:
            raise WrongToken if authorization else NoToken
        allowed = caller.is_operator if route.who == "operator" else self._door.may_act_for(caller, tenant)
        if not allowed and route.who != "caller":
            raise HttpError(404, NOTHING)  # before its roles are looked at: nobody can tell what is another tenant's
        if route.roles and caller.roles.isdisjoint(route.roles):
            raise NoRole(caller, route)
        return caller

    # -- what is to be found in the audit log -----------------------------------------------------------------------
    async def _audit(self, caller: Caller | None, route: Route, scope: Scope, details: Mapping[str, Any]) -> None:
        assert caller is not None
        role = " or ".join(sorted(caller.roles & set(route.roles)))
        store, address, who, path = self.service.store, _address(scope), caller.name, scope["path"]
        await self.turns.call(
            caller.tenant, lambda: record(store, "api", who, role, address, route.action, path, details)
        )

    async def _audit_refusal(self, error: NoRole, route: Route, scope: Scope) -> None:
        """Once a minute for each token and action: whoever goes on trying is not to fill the database."""
        tried, now = (error.caller.token.id, route.action), time.monotonic()
        if not route.is_change or now - self._refused.get(tried, -1e9) < REFUSED_SECONDS:
            return
        if len(self._refused) > REFUSED:
            self._refused.clear()
        self._refused[tried] = now
        await self._audit(error.caller, route, scope, {"refused": str(error)})

    def strange(self, headers: Mapping[bytes, bytes]) -> str:
        """Why this is not taken from whoever can connect, where there are no tokens; "" if it is."""
        if self._tokens:
            return ""
        if b"origin" in headers:
            return NO_BROWSER
        return "" if self.is_for_loopback(headers) else WRONG_HOST

    def is_for_loopback(self, headers: Mapping[bytes, bytes]) -> bool:
        """Else a page whose name leads here: its browser takes us for where it came from."""
        return _LOOPBACK.fullmatch(headers.get(b"host", b"localhost")) is not None

    def stream(self, events: AsyncGenerator[dict[str, Any]], call: Call) -> Stream:
        async def is_allowed() -> bool:
            try:
                await self.let_in(call.route, call.headers, call.tenant)
            except HttpError:
                return False
            return True

        return Stream(events, call.receive, self.stopping, is_allowed)

    @contextmanager
    def reader(self, tenant: str) -> Iterator[None]:
        """Somebody who stays for a while: there may be only so many."""
        self.readers.take(tenant, 1)
        try:
            yield
        finally:
            self.readers.give(tenant, 1)

    def count(self, route: Route, tenant: str, reply: Reply) -> None:
        """Never the path as it came, nor a header: there may be anything in them."""
        self.counts.requests[route.path, reply.status] += 1
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(LogLine("request", {"method": route.method, "route": route.path, "tenant": tenant[:60],
                                        "status": reply.status}))  # fmt: skip

    # -- what goes wrong --------------------------------------------------------------------------------------------
    def refused(self, route: Route, error: Exception) -> Reply:
        reply = refusal(error)
        if reply.status == 500:
            _log.error("%s %s failed", route.method, route.path, exc_info=error)
        elif reply.status > 500 and time.monotonic() - self._told >= 1:  # it may be the same for thousands
            self._told = time.monotonic()
            _log.warning("%s %s failed: %s", route.method, route.path, error)
        return reply

    async def _nothing(self, scope: Scope, receive: Receive, send: Send) -> None:
        """No route of the daemon's own."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        dashboard = await self._looked_for_dashboard()
        if dashboard is not None and dashboard.has(scope["path"]):
            await dashboard(scope, receive, send)
            return
        self.counts.requests["none", 404] += 1
        await sentence(404, NOTHING).write(send)

    @asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        yield
        self.stop()


def _may_be_another(route: Route) -> tuple[bool, bool]:
    """A path goes before another that may match what it matches: no tenant, and no job's id, is one of its words."""
    return "{client}" in route.path, "{id}" in route.path


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


class NoRole(HttpError):
    """Whoever calls has a token that is good, and not for this."""

    def __init__(self, caller: Caller, route: Route) -> None:
        super().__init__(403, f"this takes a token with the role {' or '.join(route.roles)}")
        self.caller = caller


class _Path:
    """The routes of one path, by method."""

    def __init__(self, api: Api, pattern: str) -> None:
        self._api, self._pattern = api, pattern
        self._routes = {route.method: route for route in ROUTES if route.pattern == pattern}
        if "GET" in self._routes and not pattern.endswith(("/events", "/output")):  # whose head would never end
            self._routes["HEAD"] = self._routes["GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if route := self._routes.get(scope["method"]):
            await self._api.serve(route, scope, receive, send)
            return
        self._api.counts.requests[self._pattern, 405] += 1
        allow = ", ".join(sorted(self._routes))
        await sentence(405, f"this takes {allow} only", ((b"allow", allow.encode()),)).write(send)
