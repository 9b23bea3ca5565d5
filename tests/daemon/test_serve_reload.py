"""SIGHUP: what can be changed while a daemon runs is, what cannot is said, and a file that is wrong changes nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from hipq.daemon.daemon import Options
from hipq.daemon.handlers.policies import Policies
from hipq.daemon.http.connections import Connections
from hipq.job.retries import Backoff
from tests.daemon.api_serving import Daemon as Served
from tests.daemon.api_serving import Site, Tenant, eventually
from tests.daemon.working import SETTINGS, add, daemon, ended, python, row
from tests.engine.working import until

FIRST = "[serve]\nbody_size = 1\nconcurrency = 2\nlog_level = 'info'\nretry_after = 1000\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "hipq.toml").write_text(FIRST)
    found = Site(f"sqlite:///{tmp_path}/daemon.db", tmp_path)
    yield found
    found.close()


def hang_up(served: Served, text: str | None = None) -> str:
    """What it logs of SIGHUP, when the file says this."""
    if text is not None:
        (served.folder / "hipq.toml").write_text(text)
    assert served.call("GET", "/health").status == 200, "its loop runs, and hears signals"
    before = len(served.log)
    served.process.send_signal(signal.SIGHUP)
    return str(eventually(lambda: (said := served.log[before:]).endswith("\n") and said))


def posted(tenant: Tenant, size: int) -> int:
    return tenant("POST", "/{}/job/mail/add", b"x" * size).status


def test_what_can_be_is_reloaded_and_the_rest_is_said(site: Site) -> None:
    served = site.daemon()
    tenant = site.tenant()
    tenant.handler("nap", "import time\ntime.sleep(60)")
    assert posted(tenant, 2 << 20) == 413
    assert "nothing has changed" in hang_up(served)
    changed = FIRST.replace("size = 1", "size = 3").replace("concurrency = 2", "concurrency = 3\nport = 1")
    said = hang_up(served, f"{changed.replace('info', 'debug')}run_timeout = 1\n")
    assert "reloaded body_size=3 log_level=debug run_timeout=1" in said
    eventually(lambda: "only a restart can change this: concurrency" in served.log)
    assert "port" not in said, "the command line says it, as before"
    assert posted(tenant, 2 << 20) == 200
    assert tenant("GET", "/v1/whoami").status == 200
    assert "request method=GET route=/v1/whoami" in served.log, "a line of the level debug"
    (job_id,) = tenant.add("nap", b"1")
    eventually(lambda: "run_timeout" in str(tenant.job(job_id)["error"]) or tenant.job(job_id)["failures"] == 1, 20)
    assert "concurrency" in hang_up(served), "it is said each time"
    assert served.stop() == 0


@pytest.mark.parametrize(("text", "sentence"), [
    ("[serve]\nmemry = 1", "serve.memry is no setting; did you mean memory?"),
    ("[serve]\nmemory = 1", "memory must be a whole number from 16"),
    ("[serve", "is not TOML"),
])  # fmt: skip
def test_a_file_that_is_wrong_changes_nothing(site: Site, text: str, sentence: str) -> None:
    served = site.daemon()
    tenant = site.tenant()
    said = hang_up(served, text)
    assert "ERROR" in said
    assert "nothing was reloaded" in said
    assert sentence in said
    assert posted(tenant, 2 << 20) == 413
    assert posted(tenant, 1 << 10) == 200
    assert "Traceback" not in served.log


def test_options_count_at_once_for_jobs_and_for_contexts_that_are_there(tmp_path: Path) -> None:
    with daemon(tmp_path, retry_after=1000.0, retry_most=1000.0) as served:
        python(served, "fail", "raise ValueError")
        python(served, "quick", "return payload")
        (first,) = add(served, "fail")
        until(lambda: row(served, first).failures == 1)
        ended(served, add(served, "quick")[0])
        before = set(served.contexts._alive)
        new = replace(served.options, retry_after=0.01, retry_most=0.01, keep=0.0, drain=7.0, journal_bytes=12345,
                      run_timeout=9.0, contexts=replace(SETTINGS, memory=300 << 20))  # fmt: skip
        served.use(new)
        (second,) = add(served, "fail")
        until(lambda: row(served, second).failures > 2)
        assert row(served, first).failures == 1, "what was planned before stays"
        (again,) = add(served, "quick")
        ended(served, again)
        until(lambda: before.isdisjoint(served.contexts._alive), 20)  # they had the memory of before
        assert served.contexts.settings.hidden == served._hides
        assert (served.journal.most_bytes, served.engine.setup.drain, served.jobs.run_seconds) == (12345, 7.0, 9.0)
        time.sleep(0.01)
        served.upkeep.purge(threading.Event())
        assert served.store.get(again) is None, "kept for no time at all"


def test_a_context_at_work_ends_behind_its_batch(tmp_path: Path) -> None:
    with daemon(tmp_path, concurrency=1) as served:
        python(served, "wait", "import time\ntime.sleep(1)")
        (first,) = add(served, "wait")
        until(lambda: row(served, first).phase == "executing" and bool(served.contexts._alive))
        (before,) = served.contexts._alive
        served.use(replace(served.options, contexts=replace(SETTINGS, memory=300 << 20)))
        assert before in served.contexts._alive
        row_of_it = ended(served, first)
        assert (row_of_it.code, row_of_it.failures) == ("ok", 0)
        until(lambda: before not in served.contexts._alive, 20)  # idle ones are kept for a minute


def test_specs_and_connections_take_other_bounds() -> None:
    specs = Policies(Options(retry_after=1))
    before = specs["mail"]
    specs.use(Options(retry_after=5, run_timeout=7, give_up_after=9))
    assert specs["mail"] is not before
    assert (specs["mail"].run_timeout, specs["mail"].lifetime) == (7, 9)
    assert isinstance(specs["mail"].retry, Backoff)
    few = Connections(100)
    for _ in range(20):
        assert few.enter("a") == ""
    few.allow(8)
    assert "8 connections already" in few.enter("b")
    few.leave("b")
    for _ in range(20):
        few.leave("a")
    assert few.enter("a") == ""
