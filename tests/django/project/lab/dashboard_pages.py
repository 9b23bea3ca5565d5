"""The dashboard in a project: who may do what there, by Django's users, and forms by Django's token."""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client, TransactionTestCase, override_settings

from hipq.dashboard import site
from hipq.dashboard.visit import PageRoute, Reply, Role, redirect
from lab import tasks

BASE = "/tools/hipq"


def form(_site: Any, visit: Any) -> Reply:
    text = f'<form method="post" action="{visit.link("/form")}">{visit.csrf_field}</form>'
    return Reply(200, text.encode())


def sent(_site: Any, visit: Any) -> Reply:
    return redirect(visit.link("/form"), {"by": visit.visitor.name})


site.ROUTES = (  # type: ignore[misc] # a form that needs a role, whatever the pages have
    *site.ROUTES, PageRoute("GET", "/form", Role.VIEW, form), PageRoute("POST", "/form", Role.OPERATE, sent),
)  # fmt: skip


class Pages(TransactionTestCase):
    def setUp(self) -> None:
        call_command("hipq_migrate", verbosity=0)

    def visitor(self, *permissions: str, **more: Any) -> Client:
        user = User.objects.create_user(f"ann{User.objects.count()}", **{"is_staff": True, **more})
        for name in permissions:
            user.user_permissions.add(Permission.objects.get(codename=name))
        client = Client(enforce_csrf_checks=True)
        client.force_login(user)
        return client

    def test_strangers_are_sent_to_the_login_of_the_admin(self) -> None:
        for path in ("/", "/jobs?type=x", "/live?page=/", "/health"):
            response = Client().get(BASE + path)
            self.assertEqual(response.status_code, 302)
            self.assertTrue(response["location"].startswith("/admin/login/?next=/tools/hipq/"), response["location"])

    def test_a_role_by_what_a_user_may_do_in_the_admin(self) -> None:
        found = {
            "nobody": self.visitor("view_job", is_staff=False),
            "staff": self.visitor(),
            "view": self.visitor("view_job"),
            "operate": self.visitor("change_job"),
            "admin": self.visitor(is_superuser=True),
            "was admin": self.visitor(is_superuser=True, is_active=True),
        }
        User.objects.filter(username=f"ann{len(found) - 1}").update(is_active=False)
        statuses = {
            name: (client.get(f"{BASE}/").status_code, self.post(client), client.get(f"{BASE}/audit").status_code)
            for name, client in found.items()
        }
        self.assertEqual(statuses, {
            "nobody": (401, 401, 401), "staff": (401, 401, 401), "view": (200, 403, 403), "operate": (200, 303, 403),
            "admin": (200, 303, 200), "was admin": (302, 302, 302),
        })  # fmt: skip

    def post(self, client: Client, **more: Any) -> int:
        """By the form of the page; by one that was made up, where there is none."""
        found = re.search(r'name="csrf" value="(\w+)"', client.get(f"{BASE}/form").content.decode())
        token = found[1] if found else "x" * 64
        if not found:
            client.cookies["csrftoken"] = "x" * 32
            token = "x" * 32
        return int(client.post(f"{BASE}/form", {"csrf": token} | more).status_code)

    def test_a_form_needs_djangos_token(self) -> None:
        client = self.visitor(is_superuser=True)
        self.assertEqual(self.post(client), 303)
        for wrong in ({"csrf": ""}, {"csrf": "x" * 64}, {}):
            self.assertEqual(client.post(f"{BASE}/form", wrong).status_code, 403)
        token = client.cookies["csrftoken"].value
        self.assertEqual(client.post(f"{BASE}/form", headers={"x-csrf": token}).status_code, 303)
        strange = {"origin": "https://elsewhere.example"}
        self.assertEqual(client.post(f"{BASE}/form", {"csrf": token}, headers=strange).status_code, 403)

    def test_who_did_what_is_in_the_audit_log(self) -> None:
        client = self.visitor(is_superuser=True)
        self.post(client)
        text = client.get(f"{BASE}/audit").content.decode()
        self.assertIn("ann0", text)
        self.assertIn("/form", text)

    def test_pages_are_polled_and_have_the_headers_of_the_dashboard(self) -> None:
        tasks.mail.enqueue()
        response = self.visitor("view_job").get(f"{BASE}/jobs")
        self.assertIn(' data-live-mode="poll">', response.content.decode())
        self.assertIn(f'href="{BASE}/jobs"', response.content.decode())
        self.assertIn("default-src 'none'", response["content-security-policy"])

    def test_static_files_are_anybodys(self) -> None:
        response = Client().get(f"{BASE}/static/live.js")
        self.assertEqual((response.status_code, response["content-type"]), (200, "text/javascript; charset=utf-8"))

    @override_settings(HIPQ_DASHBOARD={"read_only": True})
    def test_settings_say_how_and_urls_which(self) -> None:
        client = self.visitor(is_superuser=True)
        token = client.get("/admin/") and client.get("/apart/form") and client.cookies["csrftoken"].value
        response = client.post("/apart/form", {"csrf": token})
        self.assertEqual(response.status_code, 403)
        self.assertIn("read-only", response.content.decode())
