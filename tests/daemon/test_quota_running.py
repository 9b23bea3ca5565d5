"""What a tenant may run at a time holds over all its lanes and all daemons, at every moment."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hipq.cli.main import run
from hipq.daemon import upkeep as module
from hipq.daemon.tenancy import tenants as tenants_module
from hipq.daemon.tenancy.tenants import Quotas
from hipq.limits.tenants import PerTenant
from hipq.stores.filters import Filter
from tests.daemon.working import add, daemon, ended, python
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIDY_SECONDS", 0.05)
    monkeypatch.setattr(tenants_module, "FRESH", 0.05)


def test_two_daemons_together_never_run_more_than_a_tenant_may(url: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with daemon(tmp_path / "a", url, concurrency=4) as one:
        one.tenants.add("small", quotas=Quotas(running=2))
        one.tenants.add("large")
        until(lambda: one.store.rules(one.queue.number).limits)
        with daemon(tmp_path / "b", url, concurrency=4) as other:
            for tenant in ("small", "large"):
                for kind in ("x", "y"):
                    python(one, kind, "import time\ntime.sleep(0.05)", tenant=tenant)
            free = [job_id for kind in ("x", "y") for job_id in add(other, kind, *[b"1"] * 10, tenant="large")]
            executing = Filter(one.queue.number, tenant="small", phase="executing", limit=100)
            final = Filter(one.queue.number, tenant="small", state="final", limit=10_000)
            ids: list[int] = []
            looks: list[int] = []
            until_time = time.monotonic() + 120
            while len(looks) <= 20:  # on a busy machine one may get to look seldom: then there are more jobs to look at
                ids += [
                    job_id
                    for place in (one, other)
                    for kind in "xy"
                    for job_id in add(place, kind, *[b"1"] * 6, tenant="small")
                ]
                while len(one.store.find(final)) < len(ids):
                    assert time.monotonic() < until_time
                    looks.append(len(one.store.find(executing)))
            assert {ended(one, job_id).code for job_id in ids + free} == {"ok"}
            assert 1 <= max(looks) <= 2


def test_a_quota_that_is_changed_counts_from_then_on(tmp_path: Path) -> None:
    with daemon(tmp_path, concurrency=4) as served:
        served.tenants.add("acme", quotas=Quotas(running=1))
        until(lambda: served.store.rules(served.queue.number).limits)
        python(served, "nap", "import time\ntime.sleep(600)")
        ids = add(served, "nap", *[b"x"] * 4)
        wanted = Filter(served.queue.number, tenant="acme", phase="executing", limit=100)
        until(lambda: len(served.store.find(wanted)) == 1)
        served.tenants.set("acme", running=3)
        until(lambda: len(served.store.find(wanted)) == 3)
        served.tenants.set("acme", running=0)
        until(lambda: len(served.store.find(wanted)) == 4)
        assert served.store.rules(served.queue.number).limits == ()
        for job_id in ids:
            served.jobs.cancel("acme", job_id)


def test_what_another_daemon_wrote_by_mistake_is_put_right(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        served.tenants.add("acme", quotas=Quotas(running=1))
        until(lambda: served.store.rules(served.queue.number).limits)
        right = served.store.rules(served.queue.number).limits
        served.store.change_rules(served.queue.number, lambda rules: type(rules)())
        until(lambda: served.store.rules(served.queue.number).limits == right)


def test_a_limit_of_the_queue_and_the_quotas_of_tenants_hold_together(url: str, tmp_path: Path) -> None:
    with daemon(tmp_path, url, concurrency=8) as served:
        served.tenants.add("small", quotas=Quotas(running=1))
        served.tenants.add("large")
        until(lambda: served.store.rules(served.queue.number).limits)
        until(lambda: run(["queue", "limit", "jobs", "3", "--db", url]) == 0)  # on a busy machine a claim is in its way
        for tenant in ("small", "large"):
            python(served, "nap", "import time\ntime.sleep(600)", tenant=tenant)
        ids = add(served, "nap", *[b"x"] * 4, tenant="small")

        def running(tenant: str = "") -> int:
            return len(served.store.find(Filter(served.queue.number, tenant=tenant, phase="executing", limit=100)))

        until(lambda: running("small") == 1)
        others = add(served, "nap", *[b"x"] * 4, tenant="large")
        until(lambda: running() == 3)
        assert (running("small"), running("large")) == (1, 2)
        served.tenants.set("small", running=2)
        until(lambda: PerTenant({"small": 2}) in served.store.rules(served.queue.number).in_force)
        for job_id in others:
            served.jobs.cancel("large", job_id)
        until(lambda: running("small") == 2)
        until(lambda: run(["queue", "limit", "jobs", "--rate", "1000/1", "--db", url]) == 0)
        assert PerTenant({"small": 2}) in served.store.rules(served.queue.number).in_force, "whatever else is said"
        for job_id in ids:
            served.jobs.cancel("small", job_id)
