"""Whatever tenants, senders of answers and links put into a page, it stays text: every page there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from msgspec.structs import replace

from hipq import Hipq
from hipq.dashboard.gate import Gate
from hipq.dashboard.site import ROUTES, Site
from hipq.dashboard.tokens import Tokens
from hipq.dashboard.visit import NOBODY, Role, Visit, Visitor
from hipq.job import transitions
from hipq.job.fault import Fault
from hipq.job.model import Row
from hipq.job.progress import Report
from hipq.job.run_result import Rerun
from hipq.job.schedule import Definition, ScheduleChange, Settings
from hipq.job.ticks import begun
from hipq.stores.audit import entry
from hipq.stores.protocols import Store
from hipq.testing.clock import HandClock
from tests.contract.jobs import NOW, ORDER, PLACES, answer, bring, save
from tests.dashboard.hostile import TEXTS, Markup, faults
from tests.dashboard.visiting import TOKENS

ADA = Visitor("ada <xss-tag onxss=1>", Role.ADMIN)
GETS = [route.pattern for route in ROUTES if route.method == "GET"]


def asked_for() -> set[str]:
    """The parameters that pages look at, by their source and by their forms."""
    package = files("hipq.dashboard")
    sources = [file.read_text("utf-8") for folder in ("pages", "templates") for file in (package / folder).iterdir()
               if file.name.endswith((".py", ".html"))]  # fmt: skip
    return {name for source in sources for name in re.findall(r'(?:asked\(|name=|query\[)"(\w+)"', source)}


def fill(app: Hipq, text: str) -> list[int]:
    """A job in each place, with this text in every field; the ids."""
    store = app.store
    queue = app.queue("orders").number
    engine = store.take_lease(3600, text)
    short = text[:200]
    data = json.dumps({text: text, "list": [text, {short: [short]}]})
    more = {"job_data": data, "lane": short, "tenant": short}
    rows = [bring(store, engine, queue, place, job_type=short + place, key=short + place, **more) for place in PLACES]
    fault = Fault("error", text, short, (short,), text)

    def running(key: str) -> Row:
        return bring(store, engine, queue, "executing", job_type=short, key=short + key, **more)

    one = running("result")
    rows.append(save(store, one, transitions.succeeded(one, data, 200, NOW)))
    one = running("failed")
    rows.append(save(store, one, transitions.refused(one, fault, 400, NOW)))
    one = running("retried")
    one = save(store, one, transitions.errored(one, fault, 500, NOW))
    rows.append(save(store, one, transitions.retried(one, Rerun(fault, delay=60.0), ORDER, NOW)))
    one = running("progress")
    store.report([Report(one.id, one.token, one.attempt, 0.5, short)], NOW)
    rows.append(one)
    answers(store, queue, short, data)
    store.record(entry(NOW, text, text, text, text, text, {short: text}))
    definition = Definition(Settings("0 0 * * *"), Settings(tz="Europe/Rome"))
    store.change_schedules(queue, [ScheduleChange(None, begun(short, short, definition, NOW))])
    store.change_rules(queue, lambda rules: replace(rules, paused_lanes=(short,), paused_types=(short,)))
    return [row.id for row in rows]


def answers(store: Store, queue: int, short: str, data: str) -> None:
    for n, key in enumerate(("nobody", "nobody", "result", "waiting")):
        one = answer(queue, short + key, job_type=short, tenant=short, data=data, error=n % 2 == 1)
        store.answer([replace(one, answer_id=f"{short}{n}")], NOW)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Hipq]:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db", clock=HandClock())
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def site(app: Hipq) -> Site:
    return Site([app], gate=Gate(Tokens(TOKENS)))


def visit(path: str, visitor: Visitor = ADA, **query: str) -> Visit:
    headers = {"accept": "text/html"}
    given = {name: [value] for name, value in query.items()}
    return Visit("GET", path, "/hipq", given, {}, headers, visitor, address="192.0.2.1", csrf="token")


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_is_stored_stays_text(app: Hipq, site: Site, text: str) -> None:
    ids = fill(app, text)
    numbers = [one.id for one in app.answers.list()]
    queries: dict[str, dict[str, str]] = {"/bulk": {"do": "cancel", "all": "1"}, "/rules/{queue}/try": {"most": "5"}}
    seen = set()
    for pattern in GETS:
        if pattern == "/bulk/{id}":
            continue  # there is none yet
        for number in ids if pattern.startswith("/jobs/") else numbers:
            path = re.sub(r"\{(id|number)\}", str(number), re.sub(r"\{(name|queue)\}", "orders", pattern))
            for fragment in ({}, {"x-fragment": "1"}):
                there = visit(path, ADA, **queries.get(pattern, {}))
                reply = site.reply(there._replace(headers={**there.headers, **fragment}))
                assert reply.status in (200, 404, 409), (path, reply.body.decode()[-500:])
                seen |= {pattern} if reply.status == 200 else set()
                if reply.type.startswith("text/html"):
                    assert faults(reply.body.decode()) == [], path
                else:
                    kept = dict(reply.headers).get("content-disposition", "")
                    assert kept.startswith("attachment") or pattern == "/health"
    assert seen == {*GETS} - {"/bulk/{id}"}


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_what_a_link_says_stays_text(app: Hipq, site: Site, text: str) -> None:
    app.queue("orders")
    short = text[:100]
    given = dict.fromkeys(asked_for(), text[:2000])
    assert given
    for visitor in (ADA, NOBODY):
        for pattern in GETS:
            for path in (*(re.sub(r"\{\w+\}", lambda _: one, pattern) for one in ("1", short)), f"/{short}"):  # noqa: B023
                for query in ({}, given, *({name: value} for name, value in given.items())):
                    reply = site.reply(visit(path, visitor, **query))
                    assert reply.status < 500, path
                    assert faults(reply.body.decode()) == [], (path, query)
                    for name, value in reply.headers:
                        assert "\n" not in value, name
                        assert "\r" not in value, name
                        assert name != "location" or value.startswith("/hipq/"), value


def test_the_texts_are_on_the_pages(app: Hipq, site: Site) -> None:
    """Else nothing was shown above."""
    (job_id, *_) = fill(app, TEXTS[0])
    text = Markup(site.reply(visit(f"/jobs/{job_id}")).body.decode()).text
    assert any(TEXTS[0] in part for part in text)
    assert any(TEXTS[0] in part for part in Markup(site.reply(visit("/audit")).body.decode()).text)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_check_sees_what_is_not_escaped(text: str) -> None:
    """A page that puts it wherever a page can put it, as it is, has a fault, or the text is harmless everywhere."""
    assert faults(f'<p>{text}</p><a href="{text}" title="{text}" class=x>x</a><b title=\'{text}\' id={text}></b>')


def test_a_link_to_a_page_of_ours_is_none_elsewhere() -> None:
    site_link = Visit("GET", "/jobs", "/hipq", {}, {}, {}, ADA).link("/jobs", key="//xss.example", state="")
    assert site_link == f"/hipq/jobs?{urlencode({'key': '//xss.example'})}"
    assert faults(f'<a href="{site_link}">{quote("<")}</a>') == []
