"""`/live`: what changes is sent, and only that, over a real server."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from hipq import Hipq
from hipq.dashboard import live
from hipq.dashboard.application import Dashboard, asgi
from hipq.dashboard.visit import Role, Visitor
from hipq.errors import StoreUnavailable
from tests.dashboard.serving import Served, Viewer, Watched, eventually, written

PAGE = "/watched/jobs"


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renderings without a rest."""
    monkeypatch.setattr(live, "PERIOD", 0.01)
    monkeypatch.setattr(live, "REST", 0)


def is_idle(dashboard: Dashboard) -> bool:
    streams = dashboard.live
    return not (streams._pages or streams._streams or +streams._by_visitor)


@pytest.mark.usefixtures("fast")
def test_at_first_everything_and_then_only_what_has_changed(served: Served, shop: Hipq) -> None:
    first, second = (shop.queues[0].enqueue("charge", delay=60) for _ in range(2))
    with Viewer(served, PAGE) as viewer:
        assert viewer.reply.status == 200
        assert viewer.reply.headers["content-type"] == "text/event-stream"
        told = viewer.event()
        assert told["status"] == 200
        assert set(told["elements"]) == {f"job-{first}", f"job-{second}"}
        shop.jobs.change(second, priority=7)
        told = viewer.event()
        assert set(told["elements"]) == {f"job-{second}"}, "the times of the other one have moved on, and do not count"
        assert '<td class="priority">7</td>' in told["elements"][f"job-{second}"]


@pytest.mark.usefixtures("fast")
def test_whoever_comes_back_gets_what_has_changed_since(served: Served, shop: Hipq, watched: Watched) -> None:
    first, second = (shop.queues[0].enqueue("charge", delay=60) for _ in range(2))
    with Viewer(served, PAGE) as stays, Viewer(served, PAGE) as leaves:
        stays.event()
        leaves.event()
        leaves.close()
        shop.jobs.change(first, priority=7)
        stays.event()
        with Viewer(served, PAGE, last_event_id=leaves.id) as back:
            assert set(back.event()["elements"]) == {f"job-{first}"}
        with Viewer(served, f"{PAGE}&since={leaves.id}") as back:
            assert set(back.event()["elements"]) == {f"job-{first}"}
        watched.parts["more"] = "x"
        with Viewer(served, PAGE, last_event_id=stays.id) as back:
            assert set(back.event()["elements"]) == {"more"}
        for strange in ("0-1", "x", f"{leaves.id.partition('-')[0]}-x", ""):
            with Viewer(served, PAGE, last_event_id=strange) as back:
                assert set(back.event()["elements"]) == {f"job-{first}", f"job-{second}", "more"}


def test_all_viewers_of_a_page_share_its_rendering(served: Served, watched: Watched) -> None:
    with ExitStack() as opened:
        viewers = [opened.enter_context(Viewer(served, PAGE)) for _ in range(20)]
        viewers += [opened.enter_context(Viewer(served, "/watched/else"))]
        watched.parts["part"] = "x"
        for viewer in viewers:
            while "part" not in viewer.event()["elements"]:
                pass
        visits = [visit.path for visit in watched.visits]
        assert visits.count("/watched/else") <= visits.count(PAGE) + 1
        assert visits.count(PAGE) <= 3
    visit = watched.visits[0]
    assert (visit.visitor.name, visit.visitor.role) == ("", Role.ADMIN), "nobody's name or token is in what all get"


def test_a_thousand_changes_a_second_are_one_update_a_second(served: Served, shop: Hipq) -> None:
    over = threading.Event()

    def change() -> None:
        orders = shop.queues[0]
        while not over.wait(0.02):
            orders.enqueue_many("charge", [None] * 20)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        with Viewer(served, "/watched/count") as viewer:
            viewer.event()
            began, before = time.monotonic(), shop.jobs.count("orders")
            for _ in range(3):
                assert set(viewer.event()["elements"]) == {"count"}
            took = time.monotonic() - began
            assert took > 2.9
            assert (shop.jobs.count("orders") - before) / took > 500
    finally:
        over.set()
        changing.join()


def test_a_page_rests_twenty_times_as_long_as_it_took(
    served: Served, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PERIOD", 0.01)
    moments: list[tuple[float, float]] = []
    rendered = watched.page

    def slow(site: Any, visit: Any) -> Any:
        began = time.monotonic()
        threading.Event().wait(0.05)
        watched.parts["part"] = str(began)
        reply = rendered(site, visit)
        moments.append((began, time.monotonic()))
        return reply

    monkeypatch.setattr(served._application.site, "_patterns", [
        (route._replace(reply=slow) if route.pattern.startswith("/watched") else route, pattern)
        for route, pattern in served._application.site._patterns
    ])  # fmt: skip
    with Viewer(served, PAGE) as viewer:
        viewer.event()
        viewer.event()
    (began, ended), (again, _) = moments[:2]
    assert again - ended >= 19 * (ended - began)


@pytest.mark.usefixtures("fast")
def test_one_who_does_not_read_costs_no_memory_and_is_let_go(
    served: Served, dashboard: Dashboard, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "WRITE_SECONDS", 3.0)
    size = 400_000
    with socket.create_connection(("127.0.0.1", served.port)) as mute:
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mute.sendall(f"GET /live?page={PAGE} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
        eventually(lambda: len(watched.visits) >= 1)
        most = 0
        for number in range(200):
            watched.parts["large"] = str(number) + "x" * size
            rendered = len(watched.visits)
            eventually(lambda before=rendered: len(watched.visits) > before or is_idle(dashboard))  # type: ignore[misc]
            most = max(most, written(served))
        assert most > 0, "it was not read"
        assert most < 2 * size, "one update waits for the viewer, and no more"
        eventually(lambda: is_idle(dashboard))


@pytest.mark.usefixtures("fast")
def test_disconnects_free_everything(served: Served, dashboard: Dashboard, watched: Watched) -> None:
    with ExitStack() as opened:
        for number in range(30):
            opened.enter_context(Viewer(served, f"/watched/{number % 7}"))
        assert len(dashboard.live._streams) == 30
        assert len(dashboard.live._pages) == 7
    eventually(lambda: is_idle(dashboard))
    eventually(lambda: dashboard.live._threads._work_queue.empty())
    rendered = len(watched.visits)
    with Viewer(served, "/watched/once") as viewer:
        viewer.event()
    assert {visit.path for visit in watched.visits[rendered + live.RENDERINGS :]} <= {"/watched/once"}


def test_there_are_so_many_streams_and_a_visitor_has_a_quarter(
    served: Served, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "STREAMS", 8)
    with Viewer(served, PAGE), Viewer(served, PAGE), Viewer(served, PAGE) as refused:
        assert (refused.reply.status, refused.reply.read()) == (
            503,
            b"too many pages are looked at already; try again\n",
        )
    eventually(lambda: is_idle(dashboard))
    with Viewer(served, PAGE) as viewer:
        assert viewer.event()["status"] == 200


@pytest.mark.parametrize(("page", "status"), [("/nothing", 404), ("", 404), ("x" * 5000, 400), ("//else/where", 404)])
def test_what_is_no_page_is_refused_at_once(served: Served, page: str, status: int) -> None:
    with Viewer(served, page) as viewer:
        assert viewer.reply.status == status


@pytest.mark.usefixtures("fast")
def test_a_page_that_fails_says_so_and_comes_back(
    served: Served, watched: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    watched.parts["part"] = "x"
    with Viewer(served, PAGE) as viewer:
        assert "part" in viewer.event()["elements"]
        watched.error = StoreUnavailable("the database is away")
        assert viewer.event() == {"status": 503, "elements": {}}
        watched.error = ZeroDivisionError()
        assert viewer.event() == {"status": 500, "elements": {}}
        watched.error = None
        assert viewer.event() == {"status": 200, "elements": {}}
    assert "could not be rendered" in caplog.text


def test_nobody_sees_a_stream(shop: Hipq) -> None:
    closed = Served(asgi(shop))
    try:
        with Viewer(closed, "/") as viewer, Viewer(closed, "/login") as other:
            assert (viewer.reply.status, other.reply.status) == (403, 403)
    finally:
        closed.stop()


def test_a_page_of_nobodys_has_no_stream(served: Served) -> None:
    """Its forms belong to one visitor."""
    with Viewer(served, "/login", authorization="x") as viewer:
        assert viewer.event()["elements"] == {}


def test_silence_is_broken_by_comments(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "BEAT", 0.05)
    with Viewer(served, PAGE) as viewer:
        lines = [viewer.reply.readline() for _ in range(9)]
    assert lines[0] == b"retry: 1000\n"
    assert lines.count(b":\n") >= 2


def test_a_server_that_stops_does_not_wait_for_those_who_look(served: Served, dashboard: Dashboard) -> None:
    with Viewer(served, PAGE) as viewer:
        viewer.event()
        (stream,) = dashboard.live._streams
        stream.get_loop().call_soon_threadsafe(dashboard.stop)
        assert viewer.reply.read() == b"\n", "it ended as a reply ends"
        with Viewer(served, PAGE) as late:
            assert late.reply.status == 503


def test_one_whose_session_ends_is_let_go(
    served: Served, dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_SECONDS", 0.05)
    now = [Visitor("ann", Role.ADMIN)]

    async def again(*_: Any) -> Visitor:
        return now[0]

    monkeypatch.setattr(dashboard, "_again", again)
    with Viewer(served, PAGE) as viewer:
        viewer.event()
        now[0] = Visitor("ann", Role.VIEW)
        assert viewer.reply.read() == b"\n"
    assert is_idle(dashboard)
