"""Metrics: what events and a look at the database come to, as Prometheus and OpenTelemetry read it; what is in deploy/
uses names that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hipq import Failed, Hipq, Job, Retry, Wait, fixed, limit
from hipq.answers.reports import Report, write_report
from hipq.daemon.http.metrics import MEASURES as DAEMON
from hipq.errors import StoreUnavailable
from hipq.events import Events
from hipq.job.model import New, blank
from hipq.observe.measures import DEPTH, MEASURES, OTHER, SELDOM, TYPES, Looks
from hipq.observe.meters import meter
from hipq.observe.prometheus import Collector
from hipq.testing.clock import HandClock
from tests.databases import clean
from tests.docs.test_readme import ROOT, blocks, run

Figures = dict[tuple[str, ...], float]


@pytest.fixture
def app(store_kind: str, tmp_path: Path) -> Iterator[Hipq]:
    with clean(store_kind, tmp_path / "shop.db") as url:
        app = Hipq("shop", url, clock=HandClock())
        app.migrate()
        yield app
        app.close()


def figures(text: str) -> Figures:
    """By name and values of labels, as the client library's own parser reads them."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(collector: Collector) -> Figures:
    registry = CollectorRegistry()
    registry.register(collector)
    return figures(generate_latest(registry).decode())


def work(app: Hipq) -> None:
    """A bit of everything."""
    queue = app.queue("orders", limits=[limit(3)])
    queue.job("good")(lambda _: None)
    queue.job("says")(lambda _: Failed("no"))
    queue.job("asks")(lambda job: Retry(0) if job.attempt == 1 else None)
    charge = queue.job("charge")(lambda _: Wait())

    @queue.job(retry=fixed(3600))
    async def bad(_job: Job[Any]) -> None:
        raise ConnectionError("no")

    for name in ("good", "says", "asks", "bad"):
        queue.enqueue(name)
    for key in ("a", "b", "c"):
        charge.enqueue(key=key)
    app.cancel(queue.enqueue("good", delay=60))
    app.run(until_empty=True)
    charge.answer("a", 1)
    charge.answer("b", 1, error=True)
    charge.answer("nobody", 1)
    app.run(until_empty=True)
    queue.enqueue("good")


def test_what_prometheus_reads(app: Hipq) -> None:
    collector = Collector(app)
    work(app)
    app.database.clock.advance(seconds=90)  # type: ignore[union-attr]
    found = scrape(collector)
    ended = {key[1:]: value for key, value in found.items() if key[0] == "hipq_jobs_ended_total"}
    assert ended == {
        ("ok", "orders", "good"): 1, ("failed", "orders", "says"): 1, ("ok", "orders", "asks"): 1,
        ("ok", "orders", "charge"): 1, ("error", "orders", "charge"): 1, ("cancelled", "orders", "good"): 1,
    }  # fmt: skip
    assert found["hipq_jobs_added_total", "orders", "charge"] == 3
    assert found["hipq_jobs_retried_total", "error", "orders", "bad"] == 1
    assert found["hipq_jobs_retried_total", "retry", "orders", "asks"] == 1
    assert found["hipq_run_duration_seconds_count", "orders", "asks"] == 2
    assert found["hipq_run_duration_seconds_count", "orders", "charge"] == 3
    assert 0 <= found["hipq_run_duration_seconds_sum", "orders", "bad"] < 60
    assert found["hipq_start_delay_seconds_count", "orders", "good"] == 1
    assert found["hipq_start_delay_seconds_bucket", "+Inf", "orders", "good"] == 1
    assert found["hipq_answers_total", "matched", "orders"] == 2
    assert found["hipq_answers_total", "buffered", "orders"] == 1
    assert found["hipq_answer_wait_seconds_count", "orders"] == 2
    assert found[("hipq_store_up",)] == 1
    assert found["hipq_engines", "orders"] == 0
    assert found["hipq_queue_jobs", "ready", "orders", "good"] == 1
    assert found["hipq_queue_jobs", "waiting", "orders", ""] == 1
    assert found["hipq_queue_jobs", "scheduled", "orders", ""] == 1
    assert found["hipq_queue_oldest_due_seconds", "orders"] == pytest.approx(90, abs=1)
    assert (found["hipq_limit_held", "orders"], found["hipq_limit_units", "orders"]) == (1, 3)


def test_failures_of_answer_handlers_are_counted(app: Hipq) -> None:
    collector = Collector(app)
    charge = app.queue("orders").job("charge")(lambda _: Wait())
    charge.answered(lambda _job, answer: answer.data["receipt"])
    charge.enqueue(key="a")
    app.run(until_empty=True)
    charge.answer("a", {})
    app.run(until_empty=True)
    app.database.clock.advance(seconds=1)  # type: ignore[union-attr]
    app.run(until_empty=True)
    assert scrape(collector)["hipq_answer_failures_total", "orders", "charge"] == 2


def test_an_engine_and_a_listener_are_seen(app: Hipq) -> None:
    queue = app.queue("orders")
    queue.job("good")(lambda _: None)
    looks = Looks(app)
    engine = app.engine()
    engine.turn()
    write_report(app.store, "shop", "orders.good kafka://in", Report("kafka://in", "me", {}, 7, "", False))
    found = {(one.measure.name, *one.labels): one.value for one in looks.samples()}
    engine.leave()
    engine.executor.close()
    assert found["hipq_engines", "orders"] == 1
    assert found["hipq_listener_lag", "orders.good", "kafka://in"] == 7


def test_depth_stops_where_counting_stops(tmp_path: Path) -> None:
    app = Hipq("shop", f"sqlite:///{tmp_path}/shop.db")
    good = app.queue("orders").job("good")(lambda _: None)
    good.enqueue_many(range(DEPTH + 10))
    assert scrape(Collector(app))["hipq_queue_jobs", "ready", "orders", "good"] == DEPTH
    app.close()


def test_the_database_is_not_looked_at_more_often_than_seldom_and_may_be_away() -> None:
    class Away:
        looks = 0

        def now(self) -> int:
            self.looks += 1
            raise StoreUnavailable("away")

    class App:
        name, events, store, queues = "shop", Events(), Away(), ()

    now = [0.0]
    looks = Looks(App(), lambda: now[0])  # type: ignore[arg-type]
    for _ in range(3):
        assert [(one.measure.name, one.value) for one in looks.samples()] == [("hipq_store_up", 0)]
    assert App.store.looks == 1
    now[0] = SELDOM
    looks.samples()
    assert App.store.looks == 2


def test_labels_are_bounded() -> None:
    class App:
        name, events, store, queues = "shop", Events(), None, ()

    collector = Collector(App(), database=False)  # type: ignore[arg-type]
    for number in range(TYPES + 50):
        App.events.emit("added", 0, "orders", blank(New(1, f"t{number}", "k", "", "ready", "", 0, 0), 65537))
    found = scrape(collector)
    assert found["hipq_jobs_added_total", "orders", OTHER] == 50
    assert sum(key[0] == "hipq_jobs_added_total" for key in found) == TYPES + 1
    assert ("hipq_store_up",) not in found


def test_what_opentelemetry_is_told(app: Hipq) -> None:
    reader = InMemoryMetricReader()
    meter(app, MeterProvider([reader]))
    work(app)
    data = reader.get_metrics_data()
    assert data is not None
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    found = {one.name: one for one in scope.metrics}
    standard = {"messaging.client.sent.messages", "messaging.process.duration"}
    assert standard <= set(found)
    assert {name for name in found if not name.startswith("hipq.")} == standard
    assert found["messaging.process.duration"].unit == "s"
    points = {
        tuple(sorted((point.attributes or {}).items())): point for point in found["hipq.jobs.ended"].data.data_points
    }
    queue = ("messaging.destination.name", "orders")
    system = ("messaging.system", "hipq")
    says: Any = points[("hipq.code", "failed"), ("hipq.type", "says"), queue, system]
    assert says.value == 1
    runs: Any = {
        (point.attributes or {})["hipq.type"]: point for point in found["messaging.process.duration"].data.data_points
    }
    assert runs["asks"].count == 2
    assert dict(runs["asks"].attributes)["messaging.operation.name"] == "run"
    assert runs["asks"].explicit_bounds[0] == 0.005
    ready: Any = {
        (point.attributes or {}).get("hipq.type"): point
        for point in found["hipq.queue.jobs"].data.data_points
        if (point.attributes or {})["hipq.phase"] == "ready"
    }
    assert ready["good"].value == 1


# -- deploy/ and the guide ---------------------------------------------------------------------------------------------
def names() -> set[str]:
    """What Prometheus calls them."""
    found = set()
    for one in (*MEASURES, *DAEMON):
        name = f"{one.name}_{one.unit}" if one.unit else one.name
        found |= {f"{name}_total"} if one.kind == "counter" else {name}
        found |= {f"{name}_{end}" for end in ("bucket", "sum", "count")} if one.kind == "histogram" else set()
    return found | {"process_open_fds", "process_max_fds", "process_resident_memory_bytes", "process_cpu_seconds_total"}


def labels() -> set[str]:
    return {label for one in (*MEASURES, *DAEMON) for label in one.labels} | {"le", "instance"}


def check(expression: str) -> None:
    used = set(re.findall(r"\b(?:hipq|process)_\w+", expression))
    assert used
    assert used <= names(), expression
    for some in re.findall(r"\bby \(([^)]*)\)", expression):
        assert {label.strip() for label in some.split(",")} <= labels(), expression
    for some in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*[=!]", some)) <= labels(), expression
    assert expression.count("(") == expression.count(")")


def test_alert_rules_use_what_there_is() -> None:
    (group,) = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())["groups"]
    assert len(group["rules"]) >= 6
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        assert rule["annotations"]["summary"]
        check(rule["expr"])
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels()


def test_the_board_uses_what_there_is() -> None:
    board = json.loads((ROOT / "deploy/grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for expression in [*expressions, board["templating"]["list"][1]["query"]]:
        check(expression)
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 10


def test_the_guide_lists_what_there_is(tmp_path: Path) -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    rows = dict(re.findall(r"^\| `(hipq_\w+)` \| ([\w, ]*) ?\|", text, flags=re.MULTILINE))
    told = {name: tuple(filter(None, map(str.strip, some.split(",")))) for name, some in rows.items()}
    by_name = {}
    for one in (*MEASURES, *DAEMON):
        name = f"{one.name}_{one.unit}" if one.unit else one.name
        by_name[f"{name}_total" if one.kind == "counter" else name] = one.labels
    assert told == by_name
    programs = [block for language, block in blocks("docs/metrics.md") if language == "python"]
    prometheus, opentelemetry = (run(["python", "-c", program], tmp_path) for program in programs)
    assert figures(prometheus)["hipq_jobs_ended_total", "ok", "mails", "receipt"] == 1
    assert '"hipq.jobs.ended"' in opentelemetry
