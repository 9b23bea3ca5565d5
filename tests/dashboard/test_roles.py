"""Each role may do what it may, and no more: every route there is, whoever asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hipq import Hipq
from hipq.dashboard.application import Dashboard
from hipq.dashboard.gate import gate_of
from hipq.dashboard.more import More
from hipq.dashboard.site import OPEN, ROUTES, Site
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit
from hipq.errors import StoreUnavailable
from hipq.stores.audit import KEPT, entry
from tests.contract.database import Database
from tests.contract.test_sqlite import SqliteFile
from tests.dashboard.test_same_site import add_route, with_action
from tests.dashboard.visiting import HTML, SECRETS, TOKENS, Browser, ask
from tests.databases import fresh
from tests.engine.conftest import app, clock, make_app, url

__all__ = ["app", "clock", "make_app", "url"]

ROLES = {"": Role.NOBODY, "vera": Role.VIEW, "otto": Role.OPERATE, "ada": Role.ADMIN}


def fine(_site: Site, _visit: Visit) -> Reply:
    return Reply(200, b"")


MORE = More(
    (PageRoute("GET", "/more", Role.VIEW, fine), PageRoute("POST", "/more/{name}", Role.OPERATE, fine),
     PageRoute("GET", "/more/{name}/all", Role.ADMIN, fine), PageRoute("POST", "/more/{name}/all", Role.ADMIN, fine)),
    (("/more", "More", Role.VIEW), ("/more/x/all", "Everything", Role.ADMIN)),
)  # fmt: skip
"""What the host of a dashboard adds goes through the same doors."""
BY_NAME = {f"{route.method} {route.pattern}": route for route in (*ROUTES, *MORE.routes)}


def served(app: Hipq, *, read_only: bool = False) -> tuple[Dashboard, list[str]]:
    """A dashboard that notes which of its routes are asked."""
    asked: list[str] = []
    site = Site([app], read_only=read_only, gate=gate_of(TOKENS), more=MORE)

    def noting(route: PageRoute) -> PageRoute:
        def reply(site: Site, visit: Visit) -> Reply:
            asked.append(route.pattern)
            return route.reply(site, visit)

        return route._replace(reply=reply)

    site._patterns = [(noting(route), pattern) for route, pattern in site._patterns]
    return Dashboard(site), asked


def path_of(route: PageRoute, job_id: int) -> str:
    """Each of its parameters is the id of a job, or is called like the queue."""
    parts = [str(job_id) if part == "{id}" else "orders" if part.startswith("{") else part
             for part in route.pattern.split("/")]  # fmt: skip
    return "/".join(parts)


def visitor(dashboard: Dashboard, name: str) -> Browser:
    browser = Browser(dashboard)
    if name:
        assert browser.log_in(SECRETS[name]).status == 303
        assert browser.get("/").status == 200
    else:
        assert browser.get("/login").status == 200
    return browser


class Doors:
    """One shop for all routes and roles, its two dashboards, and who has come in there."""

    def __init__(self, url: str) -> None:
        self.app = Hipq("shop", url)
        self.app.migrate()
        self.job_id = int(self.app.queue("orders").enqueue("charge", {"amount": 5}, key="k"))
        self.dashboards = {read_only: served(self.app, read_only=read_only) for read_only in (False, True)}
        self._visitors: dict[tuple[bool, str], Browser] = {}

    def visitor(self, read_only: bool, name: str, path: str) -> Browser:
        """Somebody who is in already, or new: whoever logs in or out is somebody else afterwards."""
        if path in ("/login", "/logout"):
            return visitor(self.dashboards[read_only][0], name)
        if (read_only, name) not in self._visitors:
            self._visitors[read_only, name] = visitor(self.dashboards[read_only][0], name)
        return self._visitors[read_only, name]


@pytest.fixture(scope="module")
def doors(store_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    with fresh(store_kind, tmp_path_factory.mktemp("doors") / "shop.db") as url:
        found = Doors(url)
        yield found
        found.app.close()


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("wanted", BY_NAME)
def test_each_may_do_what_it_may(doors: Doors, wanted: str, name: str) -> None:
    route = BY_NAME[wanted]
    path = path_of(route, doors.job_id)
    for read_only, (_, asked) in doors.dashboards.items():
        is_open = route.role is Role.NOBODY
        for csrf in (None, ""):
            browser = doors.visitor(read_only, name, path)
            asked.clear()
            got = browser.get(path) if route.method == "GET" else browser.post(path, csrf=csrf)
            may = ROLES[name] >= route.role
            if route.method != "GET":
                may = may and csrf is None and (is_open or not read_only)
            assert asked == [route.pattern] * may, (wanted, name, read_only, csrf, got.status)
            if may:
                assert got.status not in (401, 405, 500), got
            elif name or is_open:
                assert got.status == 403, got
            else:
                assert got.status == (303 if route.method == "GET" else 401), got


def test_the_list_of_what_is_open_is_short() -> None:
    assert sorted(OPEN) == ["/health", "/login", "/logout"]


def test_what_a_host_adds_is_in_the_navigation_and_never_open(app: Hipq) -> None:
    def named(name: str) -> list[str]:
        page = visitor(served(app)[0], name).get("/jobs").text
        return re.findall(r">(\w+)</a>", page.partition("</nav>")[0].partition("<nav")[2])

    assert named("vera") == ["Overview", "Jobs", "Answers", "Rules", "More"]
    assert named("ada") == ["Overview", "Jobs", "Answers", "Rules", "More", "Everything", "Audit"]
    careless = More((PageRoute("GET", "/careless", Role.NOBODY, fine),))
    dashboard = Dashboard(Site([app], gate=gate_of(TOKENS), more=careless))
    assert visitor(dashboard, "").get("/careless").status == 303


def test_the_audit_log_is_for_admins() -> None:
    assert BY_NAME["GET /audit"].role is Role.ADMIN


@pytest.mark.parametrize("wanted", [one for one in BY_NAME if one.startswith("GET")])
def test_looking_changes_nothing(tmp_path: Any, wanted: str) -> None:
    database: Database = SqliteFile(tmp_path / "shop.db")
    app = Hipq("shop", database.url)
    app.migrate()
    job_id = int(app.queue("orders").enqueue("charge", key="k"))
    dashboard = Dashboard(Site([app], gate=gate_of(TOKENS), more=MORE))
    browser = visitor(dashboard, "ada")
    conn = database.connect()
    before = conn.execute("PRAGMA data_version").fetchone()
    path = path_of(BY_NAME[wanted], job_id)
    assert browser.get(path).status in (200, 400, 404)  # a trial wants to know of what
    headers = {**HTML, "authorization": f"Bearer {SECRETS['ada']}"}
    assert ask(dashboard, path, method="HEAD", headers=headers).status in (200, 400, 404)
    assert conn.execute("PRAGMA data_version").fetchone() == before
    conn.close()
    app.close()


class TestAudit:
    @pytest.fixture
    def dashboard(self, app: Hipq) -> Dashboard:
        app.queue("orders")
        dashboard, _ = served(app)
        with_action(dashboard)
        return dashboard

    @pytest.fixture
    def logged(self, app: Hipq) -> Callable[[], list[tuple[Any, ...]]]:
        return lambda: [one[2:] for one in reversed(app.store.audit_log(0, 100)) if one.action != "log in"]

    def test_what_was_done_and_what_was_refused(
        self, dashboard: Dashboard, logged: Callable[[], list[tuple[Any, ...]]], clock: Any
    ) -> None:
        visitor(dashboard, "otto").post("/jobs/7/frob", payload="4111", token="secret")
        visitor(dashboard, "vera").post("/jobs/8/frob")
        visitor(dashboard, "").post("/jobs/9/frob")
        visitor(dashboard, "otto").post("/jobs/9/frob", csrf="x")
        assert logged() == [
            ("otto", "operate", "dashboard", "192.0.2.1", "jobs frob", "/jobs/7/frob", '{"count":3}'),
            (
                "vera",
                "view",
                "dashboard",
                "192.0.2.1",
                "jobs frob",
                "/jobs/8/frob",
                '{"refused":"this takes the role operate"}',
            ),
        ]
        assert dashboard.site.store.audit_log(0, 1)[0].at == clock.now()

    def test_what_failed_was_not_done(self, dashboard: Dashboard, logged: Callable[[], list[tuple[Any, ...]]]) -> None:
        def fail(_site: Site, _visit: Visit) -> Reply:
            return Reply(409, b"")

        def raises(site: Site, _visit: Visit) -> Reply:
            site.queue("nowhere")
            return Reply(200, b"")

        add_route(dashboard.site, PageRoute("POST", "/fail", Role.VIEW, fail))
        add_route(dashboard.site, PageRoute("POST", "/raise", Role.VIEW, raises))
        assert (visitor(dashboard, "vera").post("/fail").status, visitor(dashboard, "vera").post("/raise").status) == (
            409,
            404,
        )
        assert logged() == []

    def test_logging_in_and_out(self, app: Hipq, dashboard: Dashboard) -> None:
        browser = visitor(dashboard, "vera")
        browser.post("/logout")
        browser.get("/login")
        browser.post("/logout")
        browser.get(f"/login?token={SECRETS['ada']}")
        Browser(dashboard).log_in("wrong" * 4)
        found = app.store.audit_log(0, 100)
        assert [(one.who, one.action) for one in reversed(found)] == [
            ("vera", "log in"), ("vera", "log out"), ("ada", "log in"),
        ]  # fmt: skip
        assert not any(secret in repr(found) for secret in SECRETS.values())

    def test_what_is_older_than_400_days_goes(self, app: Hipq, dashboard: Dashboard, clock: Any) -> None:
        now = clock.now()
        for at in (now - KEPT - 1, now - KEPT + 1):
            app.store.record(entry(at, "ann", "admin", "", "pause", ""))
        visitor(dashboard, "otto").post("/jobs/7/frob")
        assert [one.action for one in app.store.audit_log(0, 10)] == ["jobs frob", "log in", "pause"]

    def test_what_cannot_be_stored_is_in_the_programs_log(
        self, app: Hipq, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def away(*_: Any) -> None:
            raise StoreUnavailable("gone")

        browser = visitor(dashboard, "otto")
        monkeypatch.setattr(app.store, "record", away)
        assert browser.post("/jobs/7/frob").status == 303
        assert "otto (operate) from 192.0.2.1: jobs frob /jobs/7/frob {'count': 3}" in caplog.text

    def test_the_page(self, app: Hipq, dashboard: Dashboard) -> None:
        store = app.store
        for n in range(150):
            store.record(entry(store.now(), "ann", "admin", "::1", "pause", f"q{n}", {"lane": "<b>", "n": [1]}))
        browser = visitor(dashboard, "ada")
        first = browser.get("/audit")
        assert (first.text.count(">q"), ">q149<" in first.text) == (99, True)  # and the login
        assert "lane &lt;b&gt;, n [1]" in first.text
        older = first.text.split('href="/audit?')[1].split('"')[0]
        second = browser.get(f"/audit?{older}")
        assert (second.text.count(">q"), "Older" in second.text) == (51, False)
        for bad in ("x", "-1", "1.5", "9" * 20, "²"):
            assert browser.get(f"/audit?before={bad}").status == 400
