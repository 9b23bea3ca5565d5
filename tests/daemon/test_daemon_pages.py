"""The pages of the dashboard that only a daemon has: tenants, handlers, the journal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon.daemon import Daemon
from hipq.daemon.dashboard import handlers as handler_pages
from hipq.daemon.dashboard.handlers import compared
from hipq.daemon.dashboard.pages import pages_of
from hipq.daemon.handlers.keys import new_key
from hipq.daemon.http.api import ROUTES
from hipq.daemon.tenancy.tenants import Quotas
from hipq.dashboard import site as site_module
from hipq.dashboard.application import Dashboard
from hipq.dashboard.gate import gate_of
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role, Visit, Visitor
from hipq.errors import StoreUnavailable
from hipq.journal import JournalFinding
from hipq.sandbox import Handler
from hipq.sandbox.policy import Policy, RetryPolicy
from tests.daemon.working import add, ended, made, python, row
from tests.daemon.working import daemon as started
from tests.dashboard.hostile import TEXTS, Markup, faults
from tests.dashboard.visiting import SECRETS, TOKENS, Browser
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]

PATHS = ("/tenants", "/tenants/acme", "/handlers", "/handlers/acme/mail", "/journal")


@pytest.fixture
def idle(tmp_path: Path, url: str) -> Iterator[Daemon]:
    """It runs nothing."""
    found = made(tmp_path, url)
    yield found
    found.close()


def shown(daemon: Daemon, path: str, **query: str) -> tuple[int, str]:
    """The status and the page, as a viewer sees it."""
    site = Site([daemon.app], more=pages_of(daemon))
    asked = {name: [value] for name, value in query.items()}
    reply = site.reply(Visit("GET", path, "", asked, {}, {}, Visitor("vera", Role.VIEW)))
    return reply.status, reply.body.decode()


def page(daemon: Daemon, path: str, **query: str) -> str:
    status, html = shown(daemon, path, **query)
    assert status == 200, html
    assert faults(html) == []
    return html


def rows(html: str, section: str) -> list[list[str]]:
    """The cells of the table in this section, as one reads them."""
    (body,) = re.findall(rf'<section class="sheet" id="{section}".*?<tbody[^>]*>(.*?)</tbody>', html, re.DOTALL)
    return [
        [re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", cell))).strip()
         for cell in re.findall(r"<td.*?>(.*?)</td>", line, re.DOTALL)]
        for line in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    ]  # fmt: skip


def test_tenants_with_what_they_have_of_their_quotas(tmp_path: Path, url: str) -> None:
    with started(tmp_path, url) as daemon:
        daemon.tenants.add("acme", weight=3, quotas=Quotas(waiting=10, bytes=5000, running=2, kept=9000, rate=50))
        daemon.tenants.add("zeta")
        daemon.tenants.add("gone")
        daemon.tenants.remove("gone")
        _, secret = daemon.tenants.token("acme", "the <b>shop</b>")
        daemon.tenants.known()
        add(daemon, "mail", b"1", b"2", b"3", delay=3600)
        until(lambda: [line[2] for line in rows(page(daemon, "/tenants"), "tenants")] == ["3 of 10", "any number"])
        acme, zeta = rows(page(daemon, "/tenants"), "tenants")
        assert acme[:2] + acme[4:] == ["acme", "3", "0 of 2", "0 of 9,000", "50", "any", "1"]
        assert acme[3].endswith(" of 5,000")
        assert zeta == ["zeta", "1", "any number", "any number", "0", "any number", "any", "any", "0"]
        one = page(daemon, "/tenants/acme")
        assert rows(one, "tokens")[0][1] == "the <b>shop</b>"
        assert rows(one, "types") == [["mail", "0", "3", "0", "0", "0", "none"]]
        assert "weight 3: 75.0 %" in one
        assert 'href="/jobs?tenant=acme&amp;type=mail"' in one
        token = daemon.tenants.get("acme").tokens[0]
        for html in (one, page(daemon, "/tenants")):
            assert secret not in html
            assert token.sha256 not in html
        assert shown(daemon, "/tenants/gone")[0] == 404


def test_what_runs_is_counted_by_tenant(tmp_path: Path) -> None:
    with started(tmp_path) as daemon:
        for name, running in (("acme", 5), ("zeta", 0)):
            daemon.tenants.add(name, quotas=Quotas(running=running))
            python(daemon, "slow", "while True: pass", tenant=name)
        daemon.tenants.known()
        daemon.upkeep.keep_limits()
        for name in ("acme", "zeta"):
            add(daemon, "slow", tenant=name)
        until(lambda: [line[4] for line in rows(page(daemon, "/tenants"), "tenants")] == ["1 of 5", "1"])
        daemon.stop_now()


def test_tenants_page_by_page(idle: Daemon) -> None:
    for number in range(60):
        idle.tenants.add(f"t{number:02}")
    idle.tenants.known()
    first = page(idle, "/tenants")
    assert [line[0] for line in rows(first, "tenants")] == [f"t{number:02}" for number in range(50)]
    assert 'href="/tenants?after=t49"' in first
    second = page(idle, "/tenants", after="t49")
    assert [line[0] for line in rows(second, "tenants")] == [f"t{number:02}" for number in range(50, 60)]
    assert "More tenants" not in second


def test_handlers_their_versions_and_what_differs(idle: Daemon) -> None:
    first = idle.handlers.set("acme", "mail", lang="python", body="a = 1\nreturn a", before="import os")
    second = idle.handlers.set("acme", "mail", lang="python", body="a = 2\nreturn a", before="import os", waits=True)
    idle.handlers.set("zeta", "web", lang="http", body="https://example.com/hook")
    idle.handlers.set("zeta", "old", lang="shell", body="true")
    idle.handlers.delete("zeta", "old")
    idle.handlers.set("zeta", "purged", lang="shell", body="true")
    idle.handlers.delete("zeta", "purged", purge=True)
    found = rows(page(idle, "/handlers"), "handlers")
    assert [line[:4] for line in found] == [
        ["mail", "acme", "python", second.id], ["old", "zeta", "deleted", ""],
        ["web", "zeta", "http", idle.handlers.versions("zeta", "web")[0].id],
    ]  # fmt: skip
    assert [line[0] for line in rows(page(idle, "/handlers", tenant="zeta"), "handlers")] == ["old", "web"]
    newest = page(idle, "/handlers/acme/mail")
    assert [(line[0], line[3]) for line in rows(newest, "versions")] == [
        (second.id, "waits for an answer"), (first.id, "is ok"),
    ]  # fmt: skip
    assert "a = 2\nreturn a</pre>" in newest
    assert "import os</pre>" in newest
    assert "a = 1" not in newest
    assert "a = 1\nreturn a</pre>" in page(idle, "/handlers/acme/mail", version=first.id)
    both = unescape(page(idle, "/handlers/acme/mail", version=second.id, against=first.id))
    diff = both.partition('<pre id="diff"')[2].partition(">")[2].partition("</pre>")[0].split("\n")
    assert diff[:2] == [f"--- version {first.id}", f"+++ version {second.id}"]
    assert [line for line in diff[2:] if line[0] in "+-"] == ["-waits: false", "+waits: true", "-a = 1", "+a = 2"]
    assert "They are the same." in page(idle, "/handlers/acme/mail", against=second.id)
    assert "It was deleted" in page(idle, "/handlers/zeta/old")
    for path, query in (
        ("/handlers/acme/mail", {"version": "0" * 16}), ("/handlers/acme/mail", {"against": "<xss-tag>"}),
        ("/handlers/acme/nothing", {}), ("/handlers/nobody/mail", {}),
    ):  # fmt: skip
        status, html = shown(idle, path, **query)
        assert status == 404
        assert faults(html) == []


def test_how_a_handler_runs_and_never_what_its_secrets_are(idle: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIPQ_SECRETS_KEY", new_key())
    idle.secrets.set("acme", "BANK_KEY", "canary-of-the-pages")
    policy = Policy(memory=64, secrets=("BANK_KEY",), retry=RetryPolicy(attempts=3), network=("a.example", "b.example"))
    old = idle.handlers.set("acme", "charge", lang="python", body="return 1")
    idle.handlers.set("acme", "charge", lang="python", body="return 1", policy=policy)
    html = page(idle, "/handlers/acme/charge")
    assert rows(html, "policy") == [
        ["memory", "64"], ["network", "a.example, b.example"], ["retry.attempts", "3"], ["secrets", "BANK_KEY"],
    ]  # fmt: skip
    assert "canary" not in html
    assert "no settings of its own" in page(idle, "/handlers/acme/charge", version=old.id)
    assert "+secrets: BANK_KEY" in unescape(page(idle, "/handlers/acme/charge", against=old.id))


def test_handlers_page_by_page(idle: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler_pages, "ROWS", 2)
    for tenant in ("acme", "zeta"):
        for name in ("a", "b", "c"):
            idle.handlers.set(tenant, name, lang="shell", body="true")
    seen, after = [], ""
    while True:
        html = page(idle, "/handlers", after=after)
        seen += [(line[1], line[0]) for line in rows(html, "handlers")]
        links = re.findall(r'href="/handlers\?after=([^"]+)" rel="next"', html)
        if not links:
            break
        after = links[0].replace("%2F", "/")
    assert seen == [(tenant, name) for tenant in ("acme", "zeta") for name in ("a", "b", "c")]


def test_sources_that_are_too_long_are_cut_and_not_compared(idle: Daemon) -> None:
    one = Handler("1", "acme", "mail", "python", "x\n" * 900)
    assert compared(one, one) == []
    assert compared(one, Handler("2", "acme", "mail", "python", "x\n" * 1001)) is None
    assert compared(one, Handler("2", "acme", "mail", "python", "x" * 100_001)) is None
    first = idle.handlers.set("acme", "mail", lang="python", body="'" + "x" * 200_000 + "'")
    idle.handlers.set("acme", "mail", lang="python", body="1")
    html = page(idle, "/handlers/acme/mail", version=first.id, against=idle.handlers.versions("acme", "mail")[0].id)
    assert html.count("x" * 1000) == 99
    assert "the first 100,000 of 200,002 characters" in html
    assert "They are too long to be compared here" in html


def test_what_a_handler_printed_is_on_the_page_of_its_job(tmp_path: Path, url: str) -> None:
    with started(tmp_path, url) as daemon:
        python(daemon, "mail", "print('to <b>', payload)\nprint('card: 4111')")
        (job_id,) = add(daemon, "mail", b"ann")
        ended(daemon, job_id)
        site = Site([daemon.app], mask=["card"], more=pages_of(daemon))
        visit = Visit("GET", f"/jobs/{job_id}", "", {}, {}, {}, Visitor("vera", Role.VIEW))
        html = site.reply(visit).body.decode()
    assert faults(html) == []
    (printed,) = re.findall(r'<pre id="printed-text-\d+"[^>]*>(.*?)</pre>', html, re.DOTALL)
    assert unescape(printed) == "to <b> ann\ncard: •••"
    assert "Has run in its context" in html


def test_the_last_errors_of_a_handler(tmp_path: Path, url: str) -> None:
    with started(tmp_path, url, retry_after=3600.0, retry_most=3600.0) as daemon:
        for tenant in ("acme", "zeta"):
            python(daemon, "mail", "raise ValueError('<b>no such address</b>')", tenant=tenant)
        python(daemon, "picky", "return 400, 'never'")
        assert "None was found" in page(daemon, "/handlers/acme/mail")
        (again,) = add(daemon, "mail", b"1")
        (failed,) = add(daemon, "picky", b"1")
        add(daemon, "mail", b"1", tenant="zeta")
        ended(daemon, failed)
        until(lambda: row(daemon, again).failures == 1)
        (seen,) = rows(page(daemon, "/handlers/acme/mail"), "errors")
        assert seen[:4] == [str(again), "retrying", "error", "500"]
        assert "<b>no such address</b>" in seen[4]
        html = page(daemon, "/handlers/acme/picky")
        (seen,) = rows(html, "errors")
        assert seen[:4] == [str(failed), "failed", "failed", "400"]
        assert f'href="/jobs/{failed}"' in html


def test_the_journal_and_its_quarantine(idle: Daemon) -> None:
    html = page(idle, "/journal")
    assert "Nothing is damaged" in html
    assert idle.journal.identity in html
    add(idle, "mail", b"1", b"2")
    idle.journal.found.append(JournalFinding("refused", "x", 0, 0, "<xss-tag>", kept="quarantine/7.1.refused"))
    html = page(idle, "/journal")
    facts = re.sub(r"\s+", " ", " ".join(Markup(html).text))
    assert "Jobs 2 " in facts
    assert f" of {1 << 30:,} " in facts
    assert f"Written up to {idle.journal.last} " in facts
    ((what, why, kept),) = rows(html, "findings")
    assert (what, kept) == ("refused", "quarantine/7.1.refused")
    assert "the database has refused <xss-tag>" in why
    assert "the database has refused jobs: they are in quarantine" in html
    for number in range(200):
        idle.journal.found.append(JournalFinding("note", f"file{number}", 0, 0, "look"))
    html = page(idle, "/journal")
    found = rows(html, "findings")
    assert (len(found), found[0][1], "the last of 201" in html) == (100, "file199: look", True)


def test_the_journal_is_shown_while_the_database_is_away(idle: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any, **_more: Any) -> None:
        raise StoreUnavailable("the database is away")

    for verb in ("now", "notes", "find", "limits", "census", "usage"):
        monkeypatch.setattr(idle.store, verb, away)
    monkeypatch.setattr(idle._ingest, "away", "no route")
    assert "the store is away: jobs wait in the journal" in page(idle, "/journal")
    for path in ("/tenants", "/handlers"):
        assert shown(idle, path)[0] == 503


def test_whatever_a_tenant_puts_stays_text(idle: Daemon, url: str) -> None:
    idle.tenants.add("acme")
    for text in [text[:5000] for text in TEXTS if url.startswith("sqlite") or "\x00" not in text]:
        note = "".join(letter for letter in text if letter.isprintable())[:200]
        token, _ = idle.tenants.token("acme", note)
        idle.tenants.known()
        first = idle.handlers.set("acme", "mail", lang="shell", body=text, before=text, afterEach=text)
        idle.handlers.set("acme", "mail", lang="shell", body=f"{text}\nx", beforeEach=text)
        idle.journal.found.append(JournalFinding("damage", text, 0, 1, text, kept=text))
        pages = {path: page(idle, path) for path in PATHS}
        assert note in "".join(Markup(pages["/tenants/acme"]).text)
        assert text.replace("\r\n", "\n") in "".join(Markup(pages["/handlers/acme/mail"]).text).replace("\r\n", "\n")
        assert text in "".join(Markup(pages["/journal"]).text)
        page(idle, "/handlers/acme/mail", against=first.id)
        for query in ({"version": text}, {"against": text}):
            assert faults(shown(idle, "/handlers/acme/mail", **query)[1]) == []
        for path in ("/tenants", "/handlers"):
            page(idle, path, after=text, tenant=text)
        idle.tenants.revoke("acme", token.id)
        idle.journal.found.clear()


def test_they_are_for_those_who_may_look_and_change_nothing(idle: Daemon) -> None:
    idle.tenants.add("acme")
    idle.tenants.known()
    idle.handlers.set("acme", "mail", lang="shell", body="true")
    dashboard = Dashboard(Site([idle.app], gate=gate_of(TOKENS), more=pages_of(idle)))
    nobody = Browser(dashboard)
    assert {nobody.get(path).status for path in PATHS} == {303}
    assert {nobody.post(path).status for path in PATHS} == {401}
    for name in SECRETS:
        browser = Browser(dashboard)
        browser.log_in(SECRETS[name])
        before = idle.store.notes("tenant"), idle.store.notes("handler"), idle.store.audit_log(0, 100)
        assert {browser.get(path).status for path in PATHS} == {200}
        assert {browser.post(path).status for path in PATHS} == {405}
        assert before == (idle.store.notes("tenant"), idle.store.notes("handler"), idle.store.audit_log(0, 100))
    assert all(route.method == "GET" and route.role is Role.VIEW for route in pages_of(idle).routes)


def test_no_path_of_theirs_is_one_of_the_daemons_own(idle: Daemon) -> None:
    """Whatever a tenant and a type are called."""
    own = [site_module._compiled(re.sub(r":path}", "}", route.pattern)) for route in ROUTES]
    for route in pages_of(idle).routes:
        for words in (("job", "add"), ("handler", "get"), ("v1", "jobs"), ("acme", "mail")):
            path = re.sub(r"{(name|tenant)}", words[0], route.pattern).replace("{type}", words[1])
            assert not any(pattern.fullmatch(path) for pattern in own), path
