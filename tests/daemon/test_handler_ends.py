"""What handlers come to: statuses, jobs they ask for, the version that ran; and code that is refused before it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from hipq.daemon.daemon import Daemon
from hipq.sandbox import languages
from tests.daemon.api_serving import Tenant, site
from tests.daemon.working import SETTINGS, add, daemon, ended, history, python, row
from tests.engine.working import until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    settings = replace(SETTINGS, http_allow=("127.0.0.1:*",))
    with daemon(tmp_path_factory.mktemp("ends"), contexts=settings, retry_after=600.0) as found:
        yield found


@pytest.fixture
def mine() -> Tenant:
    return site().tenant()


def test_one_job_line_too_many_is_refused_whole(served: Daemon) -> None:
    python(served, "many", "for n in range(int(payload)): print('J: child|%d' % n)")
    (job_id,) = add(served, "many", b"10001")
    found = ended(served, job_id)
    assert (found.code, found.exitcode) == ("failed", 413)
    assert "more than 10,000 jobs" in found.error
    assert served.jobs.list("acme", type="child").rows == []


def test_lines_of_a_run_that_is_tried_again_become_no_jobs(served: Daemon) -> None:
    python(served, "twice", "print('J: grandchild|x')\nreturn 500 if job.attempt == 1 else 200")
    (job_id,) = add(served, "twice", b"x")
    until(lambda: row(served, job_id).failures == 1)
    assert served.jobs.list("acme", type="grandchild").rows == []
    served.jobs.retry("acme", job_id)
    ended(served, job_id)
    assert len(served.jobs.list("acme", type="grandchild").rows) == 1


def test_202_is_ok_like_any_2xx(served: Daemon) -> None:
    python(served, "accepted", "return 202, 'done'")
    found = ended(served, add(served, "accepted", b"x")[0])
    assert (found.code, found.exitcode, served.jobs.result(found)) == ("ok", 202, b"done")


class Busy(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(429)
        if self.path != "/":
            self.send_header("Retry-After", self.path[1:])
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.parametrize(("said", "least", "most"), [("7", 6, 8), ("", 590, 661), ("rubbish", 590, 661)])
def test_429_of_an_http_handler_is_a_retry_after_what_it_says(served: Daemon, said: str, least: int, most: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        served.handlers.set("acme", "busy", lang="http", body=f"http://127.0.0.1:{server.server_port}/{said}")
        (job_id,) = add(served, "busy", b"x")
        until(lambda: row(served, job_id).exitcode == 129)
        found = row(served, job_id)
        assert found.code == "retry"
        assert least < (found.scheduled_run_time - time.time() * 1e6) / 1e6 < most
        served.jobs.cancel("acme", job_id)
    finally:
        server.shutdown()
        server.server_close()


def test_a_job_says_which_version_ran(served: Daemon) -> None:
    ids = []
    for n in range(2):
        version = served.handlers.set("acme", "versioned", lang="python", body=f"return '{n}'")
        found = ended(served, add(served, "versioned", b"x")[0])
        assert [entry["version"] for entry in history(found) if entry["event"] == "ran"] == [version.id]
        ids.append(version.id)
    served.handlers.restore("acme", "versioned", ids[0])
    found = ended(served, add(served, "versioned", b"x")[0])
    assert served.jobs.result(found) == b"0"


# -- over HTTP ---------------------------------------------------------------------------------------------------------
BROKEN = {
    "python": "x = 1\nreturn (\n",
    "node": "const a = 1;\nreturn {;\n",
    "php": "$a = 1;\nif ($a {\n}",
}


@pytest.mark.parametrize("lang", BROKEN)
def test_a_handler_that_does_not_parse_is_refused_with_its_line(mine: Tenant, lang: str) -> None:
    if lang not in languages(SETTINGS):
        pytest.skip(f"{lang} is not installed here")
    path = f"/{{}}/handler/add/broken?method={lang}"
    got = mine("POST", path, BROKEN[lang].encode(), content_type="text/plain")
    assert got.status == 400
    assert "(line 2)" in got.error
    assert mine("GET", "/{}/handler/get/broken").status == 404
    good = {"python": "return 1", "node": "return await 1", "php": "return 1;"}[lang]
    assert mine("POST", path, good.encode(), content_type="text/plain").status == 200
    got = mine("PUT", "/v1/{}/handlers/broken", {"lang": lang, "body": good, "before": BROKEN[lang]})
    assert "before" in got.error


def test_nothing_of_a_handler_runs_when_it_is_set(mine: Tenant, tmp_path: Path) -> None:
    left = tmp_path / "left"
    source = f"open({str(left)!r}, 'w')"
    got = mine("PUT", "/v1/{}/handlers/quiet", {"lang": "python", "body": source, "before": source})
    assert got.status == 200
    assert not left.exists()


def test_a_deleted_handler_is_brought_back(mine: Tenant) -> None:
    mine.handler("kept", "return 'first'")
    mine.handler("kept", "return 'second'")
    assert mine("DELETE", "/v1/{}/handlers/kept").status == 200
    assert mine("GET", "/v1/{}/handlers/kept").status == 404
    versions = mine("GET", "/v1/{}/handlers/kept/versions").json["versions"]
    assert [one["body"] for one in versions] == ["return 'second'", "return 'first'"]
    assert mine("POST", f"/v1/{{}}/handlers/kept/versions/{versions[1]['id']}").status == 200
    assert mine("GET", "/v1/{}/handlers/kept").json["body"] == "return 'first'"
    assert mine("POST", "/v1/{}/handlers/kept/versions/abcdef").status == 404
    (job_id,) = mine.add("kept", b"x")
    assert mine.ended(job_id).body == b"first"
    assert mine("DELETE", "/v1/{}/handlers/kept?purge=true").status == 200
    assert mine("GET", "/v1/{}/handlers/kept/versions").status == 404


@pytest.mark.parametrize("once", [{}, {"idempotency_key": "k1"}])
def test_then_and_windows_on_the_seeds_route(mine: Tenant, once: dict[str, str]) -> None:
    mine.handler("first", "return payload + '!'")
    mine.handler("second", "return payload.upper()")
    (job_id,) = mine.add("first", b"hello", "?then=second", **once)
    assert mine.ended(job_id).body == b"hello!"
    (follower,) = mine("GET", "/v1/{}/jobs?type=second").json["jobs"]
    assert mine.ended(follower["id"]).body == b"HELLO!"
    windows = [{"start": "22:00", "end": "05:00", "tz": "Europe/Rome", "days": ["fri"]}]
    (job_id,) = mine.add("first", b"later", f"?windows={quote(json.dumps(windows))}")
    assert mine.job(job_id)["time_windows"] == windows
    for bad in ("nonsense", '[{"start": 1}]', "{}"):
        assert mine("POST", f"/{{}}/job/first/add?windows={quote(bad)}", b"x").status == 400
