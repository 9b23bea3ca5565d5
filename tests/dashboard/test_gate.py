"""Who gets in, and how."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest

from hipq import Hipq, Invalid
from hipq.dashboard import Visitor, asgi
from hipq.dashboard.application import Dashboard
from hipq.dashboard.gate import WRONG, WRONG_IN_ALL, Gate
from hipq.dashboard.headers import SECURITY
from hipq.dashboard.session import SECONDS, Sessions
from hipq.dashboard.site import Site
from hipq.dashboard.tokens import Tokens
from hipq.dashboard.visit import PageRoute, Reply, Role, Visit
from tests.dashboard.test_same_site import add_route
from tests.dashboard.visiting import HTML, SECRETS, TOKENS, Browser, ask

ADA, OTTO, VERA = SECRETS["ada"], SECRETS["otto"], SECRETS["vera"]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIPQ_DASHBOARD_TOKENS", raising=False)
    monkeypatch.delenv("HIPQ_DASHBOARD_SECRET", raising=False)


@pytest.fixture
def app() -> Iterator[Hipq]:
    app = Hipq("shop", "sqlite://")
    app.queue("orders")
    yield app
    app.close()


@pytest.fixture
def dashboard(app: Hipq) -> Dashboard:
    return asgi(app, tokens=TOKENS)


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


class TestClosed:
    @pytest.mark.parametrize("tokens", [None, {}])
    def test_without_a_word_it_is_closed_and_says_what_to_write(self, app: Hipq, tokens: Any) -> None:
        dashboard = asgi(app, tokens=tokens)
        for path in (
            "/",
            "/jobs",
            "/jobs/7",
            "/audit",
            "/nothing",
            "/login",
            "/login?token=x",
            "//",
            "/static/nothing",
        ):
            got = ask(dashboard, path, headers=HTML | bearer(ADA))
            assert got.status == 403, path
            assert "asgi(app, tokens=" in got.text
            assert "$HIPQ_DASHBOARD_TOKENS" in got.text
            assert "authenticate=" in got.text
        assert ask(dashboard, "/jobs", method="POST").status == 403
        assert (ask(dashboard, "/health").status, ask(dashboard, "/health").text) == (200, "ok\n")
        assert ask(dashboard, "/static/dashboard.css").status == 200

    def test_a_site_without_a_gate_is_closed(self, app: Hipq) -> None:
        assert ask(Dashboard(Site([app])), "/").status == 403

    def test_tokens_and_authenticate_are_one_too_many(self, app: Hipq) -> None:
        with pytest.raises(Invalid, match="not both"):
            asgi(app, tokens=TOKENS, authenticate=lambda _: "view")


class TestTokens:
    def test_of_the_environment(self, app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_TOKENS", f" ann=admin:{ADA} , bob = view:{VERA},")
        dashboard = asgi(app)
        assert ask(dashboard, "/audit", headers=bearer(ADA)).status == 200
        assert ask(dashboard, "/audit", headers=bearer(VERA)).status == 403
        assert ask(dashboard, "/", headers=bearer(VERA)).status == 200

    def test_those_of_the_code_go_before(self, app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_TOKENS", f"ann=admin:{ADA}")
        assert ask(asgi(app, tokens={"v": ("view", VERA)}), "/", headers=bearer(ADA)).status == 401
        assert ask(asgi(app, tokens={}), "/", headers=bearer(ADA)).status == 403

    @pytest.mark.parametrize(
        ("said", "match"),
        [
            (f"ann={ADA}", "NAME=ROLE:TOKEN"),
            (f"ann=boss:{ADA}", "view, operate, admin, not 'boss'"),
            (f"ann=nobody:{ADA}", "view, operate, admin"),
            (f"=admin:{ADA}", "a name of 1 to 100"),
            (f"a\tb=admin:{ADA}", "a name of 1 to 100"),
            ("ann=admin:short-secret-15", "16 to 500 characters"),
            (f"ann=admin:{'x' * 501}", "16 to 500 characters"),
            (f"ann=admin:{ADA} {ADA}", "no spaces"),
            (f"ann=admin:{ADA}ü", "of ASCII"),
            (f"ann=admin:{ADA},ann=view:{VERA}", "has 'ann' twice"),
            (f"ann=admin:{ADA},bob=view:{ADA}", "the same token"),
            (",", "is empty"),
        ],
    )  # fmt: skip
    def test_that_will_not_do_are_refused_and_not_told(
        self, app: Hipq, monkeypatch: pytest.MonkeyPatch, said: str, match: str
    ) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_TOKENS", said.replace("short-secret-15", "short-secret-x5"[:15]))
        with pytest.raises(Invalid, match=match) as error:
            asgi(app)
        assert ADA not in str(error.value)
        assert "short-secret" not in str(error.value)

    def test_the_environment_has_no_secret_that_is_short(self, app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_SECRET", "x" * 31)
        with pytest.raises(Invalid, match="32 characters"):
            asgi(app, tokens=TOKENS)

    def test_no_token_is_in_the_memory_of_a_dashboard(self, dashboard: Dashboard) -> None:
        assert ADA not in repr(vars(dashboard.site.gate.tokens))


class TestLogin:
    def test_by_the_form(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        away = browser.get("/jobs?state=error&q=a+b")
        assert (away.status, away.location) == (303, "/login?next=%2Fjobs%3Fstate%3Derror%26q%3Da%2Bb")
        page = browser.get(away.location)
        assert (page.status, page.text.count("<form")) == (200, 1)
        assert 'name="next" value="/jobs?state=error&amp;q=a+b"' in page.text
        there = browser.post("/login", token=f" {VERA}\n", next="/jobs?state=error&q=a+b")
        assert (there.status, there.location) == (303, "/jobs?state=error&q=a+b")
        assert browser.get("/jobs").status == 200
        assert browser.get("/audit").status == 403

    def test_by_a_link_which_leaves_the_address_bar(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard, root="/hipq")
        got = browser.get(f"/login?token={ADA}&next=/rules", **{"sec-fetch-site": "none"})
        assert (got.status, got.location) == (303, "/hipq/rules")
        assert browser.get("/audit").status == 200

    def test_a_link_on_another_site_logs_nobody_in(self, dashboard: Dashboard) -> None:
        for said in ("cross-site", "same-site"):
            browser = Browser(dashboard)
            got = browser.get(f"/login?token={ADA}", **{"sec-fetch-site": said})
            assert (got.status, list(browser.cookies)) == (403, ["hipq_form"])
            assert ADA not in got.text

    def test_who_looks_at_a_link_first_logs_nobody_in(self, dashboard: Dashboard) -> None:
        assert "hipq_session" not in str(ask(dashboard, f"/login?token={ADA}", method="HEAD", headers=HTML).pairs)
        live = {**HTML, "x-fragment": "1"}
        assert "hipq_session" not in str(ask(dashboard, f"/login?token={ADA}", headers=live).pairs)

    def test_servers_do_not_log_the_token(self, dashboard: Dashboard) -> None:
        scopes: list[MutableMapping[str, Any]] = []

        async def server(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            scopes.append(scope)
            await dashboard(scope, receive, send)

        assert ask(server, f"/login?token={ADA}").status == 303
        assert ADA not in repr(scopes)

    def test_a_wrong_token_gets_the_form_again(self, dashboard: Dashboard, caplog: pytest.LogCaptureFixture) -> None:
        browser = Browser(dashboard)
        got = browser.log_in("wrong" * 5)
        assert (got.status, got.text.count("<form")) == (403, 1)
        assert "nobody has this token" in got.text
        assert browser.log_in("").status == 403
        assert browser.log_in("wrong" * 1000).status == 403
        assert "hipq_session" not in browser.cookies
        assert "192.0.2.1" in caplog.text
        assert "wrongwrong" not in caplog.text

    @pytest.mark.parametrize(
        "following",
        [
            "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example", "javascript:alert(1)",
            "/\t/evil.example", "/ /evil.example", "evil.example", "", "/a\r\nset-cookie: x=1", "/\x00", "/ü", "/a\\b",
            "/" + "x" * 3000,
        ],
    )  # fmt: skip
    def test_it_leads_to_no_other_host(self, dashboard: Dashboard, following: str) -> None:
        for root in ("", "/hipq"):
            browser = Browser(dashboard, root=root)
            browser.get("/login")
            got = browser.post("/login", token=VERA, next=following)
            assert (got.status, got.location) == (303, f"{root}/")

    def test_programs(self, dashboard: Dashboard) -> None:
        got = ask(dashboard, "/jobs")
        assert (got.status, got.headers["www-authenticate"]) == (401, "Bearer")
        assert got.headers["content-type"].startswith("text/plain")
        assert ask(dashboard, "/jobs", headers=bearer("x" * 20)).status == 401
        assert ask(dashboard, "/jobs", headers={"authorization": f"bearer  {VERA} "}).status == 200
        assert ask(dashboard, "/jobs", headers={"authorization": f"Basic {VERA}"}).status == 401

    def test_a_wrong_bearer_is_not_helped_by_a_cookie(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        browser.log_in(ADA)
        assert browser.get("/jobs", authorization="Bearer " + "x" * 20).status == 303
        assert browser.get("/jobs", authorization="Basic " + "x" * 20).status == 200

    def test_a_part_of_a_page_sends_the_whole_page_to_the_login(self, dashboard: Dashboard) -> None:
        got = ask(dashboard, "/jobs", headers={**HTML, "x-fragment": "1"}, root="/hipq")
        assert (got.status, got.headers["x-login"]) == (401, "/hipq/login")

    def test_a_form_too_large_is_refused(self, dashboard: Dashboard) -> None:
        got = ask(dashboard, "/login", method="POST", body=b"x" * 20_000)
        assert got.status == 413
        got = ask(dashboard, "/jobs", method="POST", body=b"x" * (1 << 20), headers=bearer(ADA))
        assert got.status == 405
        got = ask(dashboard, "/jobs", method="POST", body=b"x" * ((1 << 20) + 1), headers=bearer(ADA))
        assert got.status == 413


class TestWrongTokens:
    @pytest.fixture
    def now(self) -> list[float]:
        return [1_000.0]

    @pytest.fixture
    def dashboard(self, app: Hipq, now: list[float]) -> Dashboard:
        return Dashboard(Site([app], gate=Gate(Tokens(TOKENS), steady=lambda: now[0])))

    def test_an_address_is_slowed_down_and_no_other(self, dashboard: Dashboard, now: list[float]) -> None:
        for n in range(WRONG):
            assert ask(dashboard, "/", headers=bearer(f"{n:020}")).status == 401
        got = ask(dashboard, "/", headers=bearer(VERA))
        assert (got.status, got.headers["retry-after"]) == (429, "60")
        browser = Browser(dashboard)
        assert browser.log_in(VERA).status == 429
        assert browser.get(f"/login?token={VERA}").status == 429
        assert ask(dashboard, "/", headers=bearer(VERA), address="192.0.2.2").status == 200
        now[0] += 10
        assert browser.log_in(VERA).status == 303
        assert ask(dashboard, "/", headers=bearer("x" * 20)).status == 401
        assert ask(dashboard, "/", headers=bearer(VERA)).status == 429

    def test_who_is_logged_in_is_not(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        browser.log_in(VERA)
        for n in range(WRONG + 1):
            ask(dashboard, "/", headers=bearer(f"{n:020}"))
        assert browser.get("/").status == 200

    def test_right_tokens_cost_nothing(self, dashboard: Dashboard) -> None:
        assert {ask(dashboard, "/", headers=bearer(VERA)).status for _ in range(WRONG * 3)} == {200}

    def test_all_addresses_together_are_slowed_down(self, dashboard: Dashboard, now: list[float]) -> None:
        for n in range(WRONG_IN_ALL):
            assert ask(dashboard, "/", headers=bearer("x" * 20), address=f"198.51.{n // 250}.{n % 250}").status == 401
        assert ask(dashboard, "/", headers=bearer(VERA)).status == 429
        now[0] += 0.1
        assert ask(dashboard, "/", headers=bearer(VERA)).status == 200


class TestSessions:
    def test_the_cookie(self, dashboard: Dashboard) -> None:
        for more, path, secure in (
            ({}, "/", False),
            ({"root": "/hipq"}, "/hipq", False),
            ({"scheme": "https"}, "/", True),
        ):  # fmt: skip
            browser = Browser(dashboard, **more)  # type: ignore[arg-type]
            got = browser.log_in(VERA)
            pair, *attributes = got.headers["set-cookie"].split("; ")
            assert pair.startswith("hipq_session=")
            assert attributes == [f"Path={path}", "HttpOnly", "SameSite=Lax", *(["Secure"] if secure else [])]

    def test_behind_a_proxy_that_ends_https_it_is_secure(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard, modern=False)
        browser.get("/login")
        assert "; Secure" in browser.post("/login", token=VERA, origin="https://hipq.example").headers["set-cookie"]

    def test_logging_out_ends_it_for_whoever_copied_the_cookie(self, dashboard: Dashboard) -> None:
        browser, thief = Browser(dashboard), Browser(dashboard)
        browser.log_in(VERA)
        browser.get("/")
        thief.cookies = dict(browser.cookies)
        assert thief.get("/").status == 200
        assert browser.get("/logout").status == 405
        assert browser.get("/").status == 200
        got = browser.post("/logout")
        assert (got.status, got.location) == (303, "/login")
        assert (browser.get("/").status, thief.get("/").status) == (303, 303)

    def test_a_login_begins_another_one(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        browser.log_in(VERA)
        first = browser.cookies["hipq_session"]
        browser.log_in(VERA)
        assert browser.cookies["hipq_session"] != first

    def test_it_has_an_end(self) -> None:
        now = [1_000.0]
        sessions = Sessions(clock=lambda: now[0])
        cookie = sessions.begin("ann", b"digest")
        now[0] += SECONDS - 1
        assert sessions.read(cookie, lambda _: b"digest")
        now[0] += 1
        assert sessions.read(cookie, lambda _: b"digest") is None

    def test_a_cookie_that_was_touched_is_none(self) -> None:
        sessions, other = Sessions(), Sessions()
        cookie = sessions.begin("ann", b"digest")
        assert sessions.read(cookie, lambda _: b"digest")
        assert other.read(cookie, lambda _: b"digest") is None
        assert sessions.read(cookie, lambda _: b"another") is None
        assert sessions.read(cookie, lambda _: None) is None
        said, _, signature = cookie.partition(".")
        changed = [cookie[:n] + ("A" if cookie[n] != "A" else "B") + cookie[n + 1 :] for n in range(len(cookie))]
        odd = [said, f"{said}.", f".{signature}", f"{said}=.{signature}", f"{cookie}.", f"{cookie} ", f"{cookie}=",
               "", ".", "ü.ü", "A" * 9_999, "bnVsbA.x", f"{said}.{signature}\n"]  # fmt: skip
        assert [one for one in (*changed, *odd) if sessions.read(one, lambda _: b"digest")] == []

    def test_processes_with_the_same_secret_know_each_others(self) -> None:
        here, there = Sessions("s" * 32), Sessions("s" * 32)
        assert there.read(here.begin("ann", b"digest"), lambda _: b"digest")
        assert here.form_token("ann", "nonce") == there.form_token("ann", "nonce")

    def test_a_token_taken_away_ends_its_sessions(self, app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_SECRET", "s" * 32)
        browser = Browser(asgi(app, tokens=TOKENS))
        browser.log_in(OTTO)
        assert browser.get("/").status == 200
        for tokens, status in (
            (TOKENS, 200),
            ({name: one for name, one in TOKENS.items() if name != "otto"}, 303),
            ({**TOKENS, "otto": ("operate", "x" * 20)}, 303),
        ):
            browser.application = asgi(app, tokens=tokens)
            assert browser.get("/").status == status

    def test_a_role_taken_away_counts_at_once(self, app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_SECRET", "s" * 32)
        browser = Browser(asgi(app, tokens=TOKENS))
        browser.log_in(ADA)
        assert browser.get("/audit").status == 200
        browser.application = asgi(app, tokens={**TOKENS, "ada": ("view", ADA)})
        assert browser.get("/audit").status == 403

    def test_a_cookie_of_another_site_does_not_hide_ours(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        browser.log_in(VERA)
        ours = browser.cookies["hipq_session"]
        headers = {**HTML, "cookie": f"hipq_session=tossed; hipq_session={ours}; other"}
        assert ask(dashboard, "/", headers=headers).status == 200

    def test_a_cookie_in_parts(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        browser.log_in(VERA)
        parts = [(b"cookie", b"a=b"), (b"cookie", f"hipq_session={browser.cookies['hipq_session']}".encode())]
        assert ask(dashboard, "/", http_version="2").status == 401

        async def http2(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            await dashboard({**scope, "headers": parts}, receive, send)

        assert ask(http2, "/").status == 200


class TestHosted:
    def test_the_application_says_who_it_is(self, app: Hipq) -> None:
        async def told(scope: MutableMapping[str, Any]) -> Visitor | None:
            name = scope.get("user")
            return Visitor(name, Role.ADMIN) if name else None

        dashboard = asgi(app, authenticate=told)
        assert ask(dashboard, "/audit", user="ann").status == 200
        assert ask(dashboard, "/audit").status == 401
        assert ask(dashboard, "/audit", headers=HTML).status == 401
        assert ask(dashboard, "/audit", headers=bearer(ADA)).status == 401
        assert ask(dashboard, f"/login?token={ADA}").status == 401
        assert ask(dashboard, "/health").status == 200

    @pytest.mark.parametrize(
        ("said", "status"),
        [
            ("view", 403), ("admin", 200), (Role.OPERATE, 403), (Visitor("", Role.NOBODY), 401), (Role.NOBODY, 401),
            (None, 401), (Visitor._make(("ann", "admin")), 200),
        ],
    )  # fmt: skip
    def test_what_it_may_say(self, app: Hipq, said: Any, status: int) -> None:
        assert ask(asgi(app, authenticate=lambda _: said), "/audit").status == status

    @pytest.mark.parametrize(
        "said", [True, False, 3, "", "root", "nobody", ("ann", "admin"), Visitor._make(("ann", 3)), {}]
    )
    def test_what_is_no_answer_lets_nobody_in(self, app: Hipq, said: Any) -> None:
        with pytest.raises(Invalid):
            ask(asgi(app, authenticate=lambda _: said), "/")

    def test_an_error_lets_nobody_in(self, app: Hipq) -> None:
        def broken(_: Any) -> str:
            raise KeyError("session")

        with pytest.raises(KeyError):
            ask(asgi(app, authenticate=broken), "/")

    def test_the_environments_tokens_do_not_count(self, app: Hipq, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HIPQ_DASHBOARD_TOKENS", f"ann=admin:{ADA}")
        assert ask(asgi(app, authenticate=lambda _: None), "/", headers=bearer(ADA)).status == 401


class TestHeaders:
    def test_every_reply_has_them(self, dashboard: Dashboard) -> None:
        browser = Browser(dashboard)
        replies = [browser.get(path) for path in ("/", "/login", "/health", "/nothing", "/static/dashboard.css")]
        replies += [browser.log_in(VERA), browser.log_in("x" * 20)]
        browser.log_in(VERA)
        replies += [browser.get(path) for path in ("/", "/jobs", "/jobs/7", "/audit", "/nothing")]
        replies += [
            browser.post("/jobs"),
            browser.post("/logout"),
            ask(dashboard, "/", method="POST", body=b"x" * 20_000),
        ]
        for got in replies:
            names = [name for name, _ in got.pairs]
            assert set(SECURITY) <= set(got.pairs)
            assert len(names) == len(set(names))
            assert got.headers["cache-control"] == "no-store" or "static" in str(got.pairs) or got is replies[4]
        assert "script-src 'self'; style-src 'self'" in replies[0].headers["content-security-policy"]

    def test_a_page_can_begin_no_other_header(self, dashboard: Dashboard) -> None:
        def download(_site: Site, _visit: Visit) -> Reply:
            return Reply(200, b"", headers=(("content-disposition", 'attachment; filename="a\r\nx: y\u263a.json"'),))

        add_route(dashboard.site, PageRoute("GET", "/download", Role.VIEW, download))
        got = ask(dashboard, "/download", headers=bearer(VERA))
        assert got.headers["content-disposition"] == 'attachment; filename="a??x: y?.json"'

    def test_static_files_are_kept_by_their_version(self, dashboard: Dashboard) -> None:
        text = Browser(dashboard, root="/hipq").get("/login").text
        (link,) = (part for part in text.split('"') if "dashboard.css" in part)
        assert link.startswith("/hipq/static/dashboard.css?v=")
        path = link.removeprefix("/hipq")
        assert "immutable" in ask(dashboard, path, root="/hipq").headers["cache-control"]
        assert ask(dashboard, "/static/dashboard.css?v=old").headers["cache-control"] == "no-cache"
        for odd in (
            "/static/",
            "/static/../site.py",
            "/static/..%2fsite.py",
            "/static//dashboard.css",
            "/static/x.css",
        ):
            assert ask(dashboard, odd).status == 401, odd


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "//", "///jobs", "//jobs", "/jobs/", "/./jobs", "/login/../jobs", "/login/", "/health/", "/Login",
            "/health/jobs", "/login;/jobs", "/static/../jobs", "jobs", "", "/hipqjobs", "/health\n", "/login\x00",
        ],
    )  # fmt: skip
    def test_no_spelling_leads_around_the_gate(self, dashboard: Dashboard, path: str) -> None:
        for root in ("", "/hipq"):
            got = ask(dashboard, path, root=root)
            assert got.status == 401, got

    def test_a_server_may_hand_over_the_path_behind_the_mount_only(self, dashboard: Dashboard) -> None:
        async def server(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            await dashboard({**scope, "root_path": "/hipq"}, receive, send)

        found = {path: ask(server, path, headers=bearer(VERA)).status for path in ("/jobs", "/hipq", "/hipqjobs")}
        assert found == {"/jobs": 200, "/hipq": 200, "/hipqjobs": 404}

    def test_a_mount_by_a_pattern_puts_nothing_into_headers(self, dashboard: Dashboard) -> None:
        root = '/a\r\nx: y; Domain=evil"<b>'
        browser = Browser(dashboard, root=root)
        got = browser.get("/jobs")
        assert got.location.startswith("/a%0D%0Ax%3A%20y%3B%20Domain%3Devil%22%3Cb%3E/login?next=")
        assert "Path=/a%0D%0Ax%3A%20y%3B%20Domain%3Devil%22%3Cb%3E; HttpOnly" in got.headers["set-cookie"]
        assert "<b>" not in browser.get("/login").text
        got = ask(dashboard, "/jobs", root="//evil.example", headers=HTML)
        assert got.location.startswith("/evil.example/login")


def test_wrong_tokens_are_said_in_the_log_in_one_line(dashboard: Dashboard, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hipq"):
        ask(dashboard, "/", headers=bearer("x" * 20), address="192.0.2.1\nforged")
    assert "192.0.2.1\\nforged" in caplog.text
