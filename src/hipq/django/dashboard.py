"""The dashboard in a project of Django's: `path("hipq/", include("hipq.django.dashboard"))`, for staff.

Superusers are admins; `hipq.change_job` lets others operate and `hipq.view_job` look, as in Django's admin. Forms are
protected by Django's own CSRF token. Pages ask again every few seconds: a stream would keep a thread of the server.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.urls import NoReverseMatch, re_path, reverse
from django.views.decorators.csrf import csrf_exempt, csrf_protect

from hipq.app import Hipq
from hipq.dashboard.gate import Gate
from hipq.dashboard.request import mounted
from hipq.dashboard.site import Site
from hipq.dashboard.static_files import static_reply
from hipq.dashboard.visit import NOBODY, Reply, Role, Visit, Visitor
from hipq.django.apps import backends
from hipq.django.backend import HipqBackend, declared


@csrf_exempt  # it is checked below, when the token is where Django looks for it
def page(request: HttpRequest, path: str, backend: str = "") -> HttpResponse:
    """Any page. `backend`: an alias of TASKS; else the first of hipq's."""
    if file := static_reply(f"/{path}", request.GET.get("v", "")):
        return _response(file)
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return redirect_to_login(request.get_full_path(), _login_url())
    token = request.headers.get("x-csrf") or request.POST.get("csrf")
    if token:
        request.META[settings.CSRF_HEADER_NAME] = token
    response: HttpResponse = _checked(request, path, backend)
    return response


@csrf_protect
def _checked(request: HttpRequest, path: str, alias: str) -> HttpResponse:
    backend = _backend(alias)
    with backend._client() as app:
        for queue in app.store.queues(app.name):
            declared(app, queue.name)
        return _response(_site(app).reply(_visit(request, path)))


def _visit(request: HttpRequest, path: str) -> Visit:
    return Visit(
        method=request.method,
        path=f"/{path}",
        base=mounted(request.path.removesuffix(path)),
        query=dict(request.GET.lists()),
        form=dict(request.POST.lists()),
        headers={name.lower(): value for name, value in request.headers.items()},
        visitor=_visitor(request.user),
        address=request.META.get("REMOTE_ADDR", ""),
        is_https=request.is_secure(),
        csrf=get_token(request),
        by_program=True,  # Django has checked its token, whose text is another one each time
    )


def _visitor(user: Any) -> Visitor:
    if not (user.is_active and user.is_staff):
        return NOBODY
    roles = {"hipq.change_job": Role.OPERATE, "hipq.view_job": Role.VIEW}
    role = next((role for name, role in roles.items() if user.has_perm(name)), Role.NOBODY)
    return Visitor(user.get_username(), Role.ADMIN if user.is_superuser else role)


def _backend(alias: str) -> HipqBackend:
    for backend in backends():
        if alias in ("", backend.alias):
            return backend
    raise ImproperlyConfigured(
        f"TASKS has no backend of hipq's {alias!r}" if alias else "TASKS has no backend of hipq's"
    )


@cache
def _site(app: Hipq) -> Site:
    """Its templates are read once. HIPQ_DASHBOARD of the settings: {"mask": ["card"], "read_only": True}."""
    return Site([app], **getattr(settings, "HIPQ_DASHBOARD", {}), gate=Gate(is_hosted=True), polls=True)


def _login_url() -> str | None:
    try:
        return str(reverse("admin:login"))
    except NoReverseMatch:
        return None  # LOGIN_URL of the settings


def _response(reply: Reply) -> HttpResponse:
    return HttpResponse(reply.body, status=reply.status, content_type=reply.type, headers=dict(reply.headers))


urlpatterns = [re_path(r"^(?P<path>.*)$", page)]
