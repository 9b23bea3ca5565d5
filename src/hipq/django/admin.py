"""Jobs in Django's admin: a list and a page for each, to look at, and to retry and to cancel. They are read from where
hipq has them, which need not be a database of Django's; nothing counts all of them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from django import VERSION
from hipq.app import Hipq
from hipq.django.apps import backends
from hipq.django.backend import HipqBackend, declared
from hipq.django.job_list import JobList
from hipq.django.job_page import fields_of, history_of
from hipq.django.models import Job
from hipq.errors import Conflict, DuplicateKey, HipqError, Invalid, NotFound
from hipq.job.states import FINAL, Code

RETRY, CANCEL = "retry", "cancel"
ACTIONS: Final = ((RETRY, "Retry now"), (CANCEL, "Cancel"))
# The stylesheets of Django's admin go by where these are; otherwise rows and filters cover half of the page.
LAYOUT: Final = {"filters_are_inside": VERSION >= (6,), "breadcrumbs_are_a_list": VERSION >= (6, 1)}


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):
    """`hipq.view_job` is needed to look, `hipq.change_job` to retry and to cancel."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Job | None:  # noqa: ARG002
        """For the pages of Django's own that ask for one, as the one of what was done to it."""
        with ExitStack() as opened:
            try:
                _find(opened, object_id)
            except Http404:
                return None
        return Job(id=object_id)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._acted(request, request.POST.getlist("_selected_action"))
        context: dict[str, Any] = {
            "queues": [],
            "filters": [],
            "actions": ACTIONS if self.has_change_permission(request) else (),
        }
        with ExitStack() as opened:
            try:
                found = JobList(request.GET, [(one, _opened(opened, one)) for one in backends()])
                context["queues"] = found.queues
                context |= found.context(self._link)
            except (HipqError, ImproperlyConfigured) as error:
                messages.error(request, str(error))
            return self._page(request, "change_list", "Jobs", context | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, _form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        key = unquote(object_id)
        if request.method == "POST":
            return self._acted(request, [key])
        with ExitStack() as opened:
            app, job_id = _find(opened, key)
            job = app.job(job_id)
            may_act = self.has_change_permission(request) and (job.state != FINAL or job.code != Code.OK)
            actions = ACTIONS[: 1 if job.state == FINAL else 2] if may_act else ()
            context = {"fields": fields_of(app, job), "history": history_of(job), "actions": actions, "key": key}
            return self._page(request, "change_form", f"Job {job_id}", context | (extra_context or {}))

    def _link(self, key: str) -> str:
        return str(reverse("admin:hipq_job_change", args=[quote(key)], current_app=self.admin_site.name))

    def _page(self, request: HttpRequest, template: str, title: str, context: dict[str, Any]) -> TemplateResponse:
        whole = {**self.admin_site.each_context(request), "opts": self.opts, "title": title, **LAYOUT, **context}
        request.current_app = self.admin_site.name  # links stay in a site of yours
        response = TemplateResponse(request, f"admin/hipq/job/{template}.html", whole)
        return response.render()  # while the database is open

    def _acted(self, request: HttpRequest, keys: Iterable[str]) -> HttpResponseRedirect:
        """Do what was asked for to each of these jobs, and go back to where that was."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        pressed = [name for name, _ in ACTIONS if f"_{name}" in request.POST]  # a button of a job's page
        action = pressed[0] if pressed else request.POST.get("action")
        if action not in dict(ACTIONS):
            messages.warning(request, "Choose what is to be done.")
        else:
            for key in keys:
                with ExitStack() as opened:
                    try:
                        app, job_id = _find(opened, key)
                        said = _retry(app, job_id) if action == RETRY else _cancel(app, job_id, request.user)
                    except (HipqError, ImproperlyConfigured) as error:
                        messages.error(request, str(error))
                        continue
                self.log_change(request, Job(id=key), said)
                messages.success(request, f"Job {job_id} {said}.")
        return HttpResponseRedirect(request.get_full_path())


def _retry(app: Hipq, job_id: int) -> str:
    job = app.job(job_id)
    if job.state != FINAL:
        app.retry_now(job_id)
        return "runs now"
    if job.code == Code.OK:
        raise Conflict(f"job {job_id} has succeeded: there is nothing to retry")
    try:
        return f"has ended: job {app.jobs.requeue(job_id)} is added like it"
    except DuplicateKey as taken:
        raise Conflict(f"job {job_id} is not added again: job {taken.id} has its key, and has not ended") from None


def _cancel(app: Hipq, job_id: int, user: Any) -> str:
    app.cancel(job_id, f"cancelled by {user.get_username()}")
    return "is cancelled" if app.job(job_id).state == FINAL else "is being cancelled: its cancel handler runs first"


def _opened(opened: ExitStack, backend: HipqBackend) -> Hipq:
    """A backend's instance with all queues that there are."""
    app = opened.enter_context(backend._client())
    for queue in app.store.queues(app.name):
        declared(app, queue.name)
    return app


def _find(opened: ExitStack, key: str) -> tuple[Hipq, int]:
    alias, _, text = key.rpartition(":")
    for backend in backends():
        if backend.alias == alias and text.isdecimal() and text.isascii() and len(text) < 20:
            app = _opened(opened, backend)
            try:
                return app, app.job(int(text)).id
            except (NotFound, Invalid):  # the latter of a number too large for an id
                break
    raise Http404(f"there is no job {key}")
