"""Jobs in Django's admin, through Django's test client: real jobs in a database of Django's, and in one that hipq has
for itself (`apart`)."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from html.parser import HTMLParser
from io import StringIO
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connection
from django.test import Client, TransactionTestCase
from django.urls import reverse
from django.utils import timezone

from django import VERSION
from hipq.django import job_list
from hipq.django.tasks import task_backends
from lab import tasks

LIST = "/admin/hipq/job/"
NEVER_CLOSED = {"br", "hr", "img", "input", "link", "meta", "path", "symbol", "use"}


class Layout(HTMLParser):
    """Where the stylesheets of Django's admin look: what the filters are in, and what the breadcrumbs are."""

    def __init__(self, body: str) -> None:
        super().__init__()
        self.inside: list[tuple[str, str]] = []
        self.filters_in: tuple[str, str] | None = None
        self.rows_in: list[tuple[str, str]] = []
        self.breadcrumbs = ""
        self.feed(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words = {name: value or "" for name, value in attrs}
        if words.get("id") == "changelist-filter":
            self.filters_in = self.inside[-1]
        if words.get("id") == "changelist-form":
            self.rows_in = self.inside[-2:]
        if words.get("class") == "breadcrumbs":
            self.breadcrumbs = tag
        if tag not in NEVER_CLOSED:
            self.inside.append((tag, words.get("class", "")))

    def handle_endtag(self, tag: str) -> None:
        while tag not in NEVER_CLOSED and self.inside and self.inside.pop()[0] != tag:
            pass


def page(alias: str, result: Any) -> str:
    return f"{LIST}{alias}_3A{result.id}/change/"


def later(**more: Any) -> Any:
    return tasks.mail.using(run_after=timezone.now() + timedelta(days=1), **more).enqueue()


class Jobs(TransactionTestCase):
    def setUp(self) -> None:
        with connection.cursor() as cursor:
            for table in connection.introspection.table_names(cursor):
                if table.startswith("django_tasks_"):
                    cursor.execute(f"DELETE FROM {table}")
        call_command("hipq_migrate", verbosity=0)
        with closing(task_backends["apart"].worker()) as app:
            app.jobs.cancel_all("mails")
            app.jobs.prune(older_than=0)
        self.client = self.staff("hipq.view_job", "hipq.change_job")

    def staff(self, *permissions: str) -> Client:
        user = User.objects.create_user(f"staff{User.objects.count()}", is_staff=True)
        for name in permissions:
            user.user_permissions.add(Permission.objects.get(codename=name.partition(".")[2]))
        client = Client(enforce_csrf_checks=False)
        client.force_login(user)
        return client

    def body(self, path: str, **asked: Any) -> str:
        response = self.client.get(path, asked)
        self.assertEqual(response.status_code, 200)
        return str(response.content.decode())

    def act(self, path: str, **posted: Any) -> str:
        """What the page says after it."""
        response = self.client.post(path, posted, follow=True)
        self.assertEqual([code for _, code in response.redirect_chain], [302])
        return " ".join(str(one) for one in response.context["messages"])

    def test_the_menu_has_it(self) -> None:
        self.assertIn(f'href="{LIST}"', self.body("/admin/"))
        self.assertNotIn("/admin/hipq/job/add/", self.body("/admin/"))

    def test_the_list_is_laid_out_as_those_of_django(self) -> None:
        later()
        self.client = self.staff("hipq.view_job", "hipq.change_job", "auth.view_user")
        own, django = (Layout(self.body(path)) for path in (LIST, "/admin/auth/user/"))
        self.assertIsNotNone(django.filters_in)
        self.assertEqual((own.filters_in, own.breadcrumbs), (django.filters_in, django.breadcrumbs))
        if VERSION >= (6,):
            self.assertEqual(own.rows_in, django.rows_in)

    def test_a_key_is_in_the_list_where_it_is_not_the_id(self) -> None:
        later()
        (row,) = self.client.get(LIST, {"queue": "default:mails"}).context["rows"]
        self.assertEqual(row["job_key"], "")
        with closing(task_backends["apart"].worker()) as app:
            app.queues[0].enqueue("letter", key="order-17", delay=3600)
        self.assertIn("<td>order-17</td>", self.body(LIST, queue="apart:mails"))

    def test_a_list_with_filters(self) -> None:
        first, bad = tasks.add.enqueue(1), tasks.divide.enqueue(0)
        mail = later()
        call_command("hipq_worker", until_empty=True, verbosity=0)
        ids = [row["id"] for row in self.client.get(LIST).context["rows"]]
        self.assertEqual(ids, [int(mail.id), int(bad.id), int(first.id)])  # of all queues
        self.assertEqual(
            {row["queue"] for row in self.client.get(LIST).context["rows"]}, {"default:default", "default:mails"}
        )
        self.assertIn("executing</a>", self.body(LIST))
        self.assertIn("There are no such jobs", self.body(LIST, phase="executing"))
        body = self.body(LIST, queue="default:mails", state="initial")
        self.assertIn(page("default", mail), body)
        self.assertIn("initial (scheduled)", body)
        self.assertNotIn(page("default", first), body)
        self.assertIn("division by zero", self.body(LIST, type="lab.tasks.divide", code="error"))
        for nobody in ({"code": "ok", "type": "lab.tasks.divide"}, {"state": "retry"}):
            self.assertIn("There are no such jobs", self.body(LIST, **nobody))
        self.assertIn("?state=final&amp;code=error", self.body(LIST, state="final", before="default:99999999"))

    def test_search_by_id_or_key(self) -> None:
        one, other = tasks.add.enqueue(1), tasks.add.enqueue(2)
        body = self.body(LIST, q=f" {one.id} ")
        self.assertIn(page("default", one), body)
        self.assertNotIn(page("default", other), body)
        mail = later()
        self.assertIn(page("default", mail), self.body(LIST, q=mail.id))  # it is of another queue
        for nothing in ("<script>", "9" * 19, "9" * 40, "٣", "0" * 5000):  # keys may be digits, more than an id has
            response = self.client.get(LIST, {"q": nothing})
            self.assertEqual((response.context.get("rows"), [*response.context["messages"]]), ([], []), nothing[:40])

    def test_pages_without_counting(self) -> None:
        before, job_list.PAGE = job_list.PAGE, 2  # type: ignore[misc]
        try:
            ids = [int(tasks.add.enqueue(n).id) for n in range(5)]
            found, query = [], "?queue=default%3Adefault"
            while query:
                context = self.client.get(LIST + query).context
                found.append([row["id"] for row in context["rows"]])
                query = context["older"]
            self.assertEqual(found, [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]])
            self.assertEqual(context["newest"], "?queue=default%3Adefault")
        finally:
            job_list.PAGE = before  # type: ignore[misc]

    def test_pages_of_all_queues(self) -> None:
        before, job_list.PAGE = job_list.PAGE, 2  # type: ignore[misc]
        try:
            ids = [int(one.id) for n in range(3) for one in (tasks.add.enqueue(n), later(backend="apart"), later())]
            found, query = list[int](), "?"
            while query:
                context = self.client.get(LIST + query).context
                found += [row["id"] for row in context["rows"]]
                query = context["older"]
            self.assertEqual(sorted(found), sorted(ids))
        finally:
            job_list.PAGE = before  # type: ignore[misc]

    def test_what_is_no_filter_is_said(self) -> None:
        for asked in ({"state": "odd"}, {"queue": "payments"}, {"before": "x"}, {"type": "a b"}, {"before": "9" * 40},
                      {"before": "0" * 20 + "9" * 20}, {"before": "0" * 5000}):  # fmt: skip
            response = self.client.get(LIST, asked)
            self.assertEqual(response.status_code, 200)
            self.assertEqual(len(list(response.context["messages"])), 1, asked)

    def test_the_page_of_a_job(self) -> None:
        bad, mail = tasks.divide.enqueue(0), later()
        echo = tasks.echo.enqueue("<b>é</b>")
        call_command("hipq_worker", queues="default", until_empty=True, verbosity=0)
        body = self.body(page("default", bad))
        for part in (
            "lab.tasks.divide",
            "final (error)",
            "return 1 / a",
            "ZeroDivisionError",
            "claimed",
            "<td>added</td>",
        ):
            self.assertIn(part, body)
        urgent = self.body(page("default", later(priority=7)))
        self.assertInHTML('<div class="readonly">7</div>', urgent)
        self.assertIn("it is scheduled for", self.body(page("default", mail)))
        self.assertIn("&lt;b&gt;é&lt;/b&gt;", self.body(page("default", echo)))
        self.assertNotIn('name="_retry"', self.body(page("default", echo)))  # it has succeeded
        for strange in ("default_3A1", "nobody_3A1", "default_3A" + "9" * 19, "default_3A" + "9" * 30, "x"):
            self.assertEqual(self.client.get(f"{LIST}{strange}/change/").status_code, 404)

    def test_retry_and_cancel_of_several(self) -> None:
        for alias in ("default", "apart"):
            with self.subTest(alias):
                one, two, three = (later(backend=alias) for _ in range(3))
                where = f"{LIST}?queue={alias}:mails"
                keys = [f"{alias}:{one.id}", f"{alias}:{two.id}"]
                self.assertIn(f"Job {one.id} runs now.", self.act(where, action="retry", _selected_action=keys))
                call_command("hipq_worker", backend=alias, until_empty=True, verbosity=0)
                said = self.act(where, action="cancel", _selected_action=[keys[0], f"{alias}:{three.id}"])
                self.assertIn(f"job {one.id} is final (ok) and stays so", said)
                self.assertIn(f"Job {three.id} is cancelled.", said)
                self.assertIn("final (ok)", self.body(page(alias, two)))
                self.assertIn("cancelled by staff0", self.body(page(alias, three)))

    def test_what_was_done_is_in_the_log(self) -> None:
        mail = later()
        self.assertInHTML('<input type="submit" name="_cancel" value="Cancel">', self.body(page("default", mail)))
        self.act(page("default", mail), _cancel="Cancel")
        entry = LogEntry.objects.get()
        self.assertEqual((entry.object_id, entry.get_change_message()), (f"default:{mail.id}", "is cancelled"))
        self.assertEqual(entry.get_admin_url(), page("default", mail))
        self.assertIn("is cancelled", self.body(page("default", mail).replace("/change/", "/history/")))
        self.assertIn(f"job default:{mail.id}", self.body("/admin/"))

    def test_a_failed_job_is_added_again(self) -> None:
        bad = tasks.divide.enqueue(0)
        call_command("hipq_worker", until_empty=True, verbosity=0)
        said = self.act(page("default", bad), _retry="Retry now")
        self.assertIn("has ended: job", said)
        rows = self.client.get(LIST, {"type": "lab.tasks.divide"}).context["rows"]
        self.assertEqual([row["step"] for row in rows], ["ready", "error"])
        self.assertEqual(self.act(LIST, _selected_action=["default:1"]), "Choose what is to be done.")

    def test_who_may_what(self) -> None:
        mail = later()
        there, key = page("default", mail), f"default:{mail.id}"
        looking, nobody = self.staff("hipq.view_job"), self.staff()
        self.assertEqual([looking.get(path).status_code for path in (LIST, there)], [200, 200])
        self.assertNotIn(b'name="action"', looking.get(LIST, {"queue": "default:mails"}).content)
        self.assertNotIn(b'name="_cancel"', looking.get(there).content)
        for client in (looking, nobody):
            self.assertEqual(client.post(there, {"_cancel": "Cancel"}).status_code, 403)
            self.assertEqual(client.post(there, {"action": "cancel"}).status_code, 403)
            self.assertEqual(client.post(LIST, {"action": "cancel", "_selected_action": [key]}).status_code, 403)
        self.assertEqual([nobody.get(path).status_code for path in (LIST, there)], [403, 403])
        self.assertEqual([Client().get(path).status_code for path in (LIST, there)], [302, 302])
        for path in (f"{LIST}add/", there.replace("change", "delete")):
            self.assertEqual(self.client.get(path).status_code, 403)
            self.assertEqual(self.client.post(path, {"post": "yes"}).status_code, 403)
        mail.refresh()
        self.assertEqual(mail.status, "READY")

    def test_a_form_of_another_site_is_refused(self) -> None:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.get())
        mail = later()
        self.assertEqual(client.post(page("default", mail), {"action": "cancel"}).status_code, 403)
        self.assertEqual(client.post(LIST, {"action": "cancel"}).status_code, 403)

    def test_dumpdata_asks_for_no_table(self) -> None:
        out = StringIO()
        call_command("dumpdata", "hipq", all=True, stdout=out)
        self.assertEqual(out.getvalue().strip(), "[]")

    def test_no_migration_is_wanted(self) -> None:
        out = StringIO()
        call_command("makemigrations", dry_run=True, stdout=out)
        self.assertNotIn("hipq", out.getvalue())
        self.assertEqual(reverse("admin:hipq_job_changelist"), LIST)
