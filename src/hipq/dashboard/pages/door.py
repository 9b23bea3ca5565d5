"""The door: logging in and out, what is said to those who are nobody, and whether the dashboard is alive.

Its pages have nothing of the others in them: nobody sees them who may not see all of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from hipq.dashboard.gate import SLOWED
from hipq.dashboard.same_site import is_own_visit
from hipq.dashboard.visit import PageRoute, Refused, Reply, Role, Visit, redirect

if TYPE_CHECKING:
    from hipq.dashboard.site import Site

CLOSED: Final = (
    'this dashboard is closed: write asgi(app, tokens={"ann": ("admin", "a long secret")}), set '
    "$HIPQ_DASHBOARD_TOKENS to ann=admin:SECRET, or let your application say who somebody is with authenticate="
)
LOG_IN: Final = "log in, or send the header `Authorization: Bearer` with your token"
_PAGE: Final = re.compile(r"/(?![/\\])[!-\[\]-~]{0,1999}")
"""A page here. By two slashes, or a backslash, browsers go to another host."""


def turn_away(site: Site, visit: Visit) -> Reply:
    """What is said to those who are nobody, whatever they asked for."""
    if visit.visitor == SLOWED:
        return _door(site, visit, 429, "too many wrong tokens came from your address: wait a minute", retry_after=60)
    if site.gate.is_hosted:
        return _door(site, visit, 401, "log in to the application that this dashboard is part of")
    if site.gate.tokens is None:
        return _door(site, visit, 403, CLOSED)
    login = f"{visit.base}/login"
    if visit.is_fragment:
        return Reply(401, b"", headers=(("x-login", login),))
    if visit.method in ("GET", "HEAD") and _takes_html(visit):
        asked = visit.link(visit.path, **{name: values[-1] for name, values in visit.query.items()})
        return redirect(f"{login}?{urlencode({'next': asked.removeprefix(visit.base)})}")
    reply = _door(site, visit, 401, LOG_IN)
    return reply._replace(headers=(*reply.headers, ("www-authenticate", "Bearer")))


def refused(site: Site, visit: Visit, status: int, sentence: str) -> Reply:
    """What is said to those who are nobody, of what is there for them."""
    return _door(site, visit, status, sentence, form=site.gate.tokens is not None)


def page(site: Site, visit: Visit) -> Reply:
    token = visit.asked("token")
    if site.gate.tokens is None:
        return turn_away(site, visit)
    if token and visit.method == "GET" and not visit.is_fragment:
        if is_own_visit(visit):
            return _log_in(site, visit, token, visit.asked("next"))
        return _door(site, visit, 403, "a link on another site does not log you in: type the token", form=True)
    return _door(site, visit, form=True)


def log_in(site: Site, visit: Visit) -> Reply:
    if site.gate.tokens is None:
        return turn_away(site, visit)
    return _log_in(site, visit, visit.sent("token").strip(), visit.sent("next"))


def log_out(site: Site, visit: Visit) -> Reply:
    if site.gate.is_hosted:
        raise Refused(404, "log out of the application that this dashboard is part of")
    cookie = site.gate.log_out(visit)
    if visit.visitor.role is not Role.NOBODY:
        site.record(visit, "log out", {})
    reply = redirect(f"{visit.base}/login")
    return reply._replace(headers=(*reply.headers, ("set-cookie", cookie)))


def health(_site: Site, _visit: Visit) -> Reply:
    return Reply(200, b"ok\n", "text/plain; charset=utf-8")


def _log_in(site: Site, visit: Visit, token: str, following: str) -> Reply:
    """The redirect takes the token out of the address bar."""
    try:
        visitor, cookie = site.gate.log_in(visit, token)
    except Refused as refused:
        return _door(site, visit, refused.status, refused.sentence, form=True)
    site.record(visit._replace(visitor=visitor), "log in", {})
    reply = redirect(visit.base + (following if _PAGE.fullmatch(following) else "/"))
    return reply._replace(headers=(*reply.headers, ("set-cookie", cookie)))


def _door(
    site: Site, visit: Visit, status: int = 200, sentence: str = "", *, form: bool = False, retry_after: int = 0
) -> Reply:
    headers = (("retry-after", str(retry_after)),) if retry_after else ()
    if not _takes_html(visit):
        return Reply(status, f"{sentence or LOG_IN}\n".encode(), "text/plain; charset=utf-8", headers)
    following = visit.sent("next") or visit.asked("next")
    reply = site.render("door.html", visit, status=status, sentence=sentence, form=form, following=following)
    return reply._replace(headers=headers)


def _takes_html(visit: Visit) -> bool:
    return "text/html" in visit.headers.get("accept", "")


ROUTES: Final = (
    PageRoute("GET", "/health", Role.NOBODY, health),
    PageRoute("GET", "/login", Role.NOBODY, page),
    PageRoute("POST", "/login", Role.NOBODY, log_in),
    PageRoute("POST", "/logout", Role.NOBODY, log_out),
)
