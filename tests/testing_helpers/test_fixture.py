"""The fixture in projects of users: pytest, pytest-xdist, unittest, async tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
import asyncio
from hipq import Hipq, Job, Ok, Wait, fixed

app = Hipq("shop")
orders = app.queue("orders")
loops = []

@orders.job(retry=fixed(60))
def charge(job: Job):
    return Wait()

@orders.job
async def fetch(job: Job):
    await asyncio.sleep(0)
    loops.append(asyncio.get_running_loop())
    return job.data
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    return tmp_path


def run(project: Path, *command: str, status: int = 0) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HIPQ_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_one_line_in_a_pytest_suite(project: Path) -> None:
    (project / "test_shop.py").write_text("""
from datetime import timedelta
import pytest
import shop

@pytest.fixture
def world(hipq_harness):
    return hipq_harness(shop.app)

@pytest.mark.parametrize("number", range(6))
def test_paid(world, number):
    world.replies(shop.charge, {"status": "paid"}, after=timedelta(hours=2))
    shop.charge.enqueue(key="order-17")  # the same key each time: each test has a database of its own
    world.advance(hours=2)
    world.assert_ok(shop.charge, "order-17", result={"status": "paid"})
    world.assert_empty()

def test_logs_and_patches_reach_handlers(world, monkeypatch, caplog):
    monkeypatch.setattr(shop, "Wait", lambda: __import__("logging").getLogger("shop").warning("patched"))
    shop.charge.enqueue()
    world.run_until_idle()
    assert "patched" in caplog.text

def test_options(hipq_harness, tmp_path):
    first = hipq_harness(shop.app, db=f"sqlite:///{tmp_path}/x.db", max_jobs=5)
    assert shop.app.url.endswith("x.db")

def test_fails(world):
    shop.charge.enqueue(key="order-18")
    world.run_until_idle()
    world.assert_ok(shop.charge, "order-18")

def test_it_was_cleaned_up(world):
    world.assert_empty()
    assert shop.app.url == "sqlite://"

def test_without_it():
    assert shop.app.url == "sqlite:///shop.db"
""")
    for more in ((), ("-n", "2")):
        said = run(project, "pytest", "-p", "no:cacheprovider", *more, status=1)
        assert "10 passed" in said
        assert "1 failed" in said
        assert "AssertionError: charge 'order-18' has not ended ok: it waits for its answer" in said
        assert "expect.py" not in said.partition("short test summary")[0]  # the test's own line is what it points at
    assert not (project / "shop.db").exists()


def test_unittest(project: Path) -> None:
    (project / "test_plain.py").write_text("""
import unittest
import shop
from hipq.testing import harness

class ShopTest(unittest.TestCase):
    def setUp(self):
        self.shop = self.enterContext(harness(shop.app))

    def test_charge(self):
        shop.charge.enqueue(key="1")
        self.shop.run_until_idle()
        self.shop.assert_waiting(shop.charge, "1")

    def test_again(self):
        shop.fetch.enqueue("x", key="1")
        self.assertEqual([run.name for run in self.shop.run_until_idle()], ["fetch"])
        self.shop.assert_ok(shop.fetch, "1", result="x")
""")
    assert "Ran 2 tests" in run(project, "unittest")


def test_async_tests_await_the_same_methods(project: Path) -> None:
    (project / "test_async.py").write_text("""
import asyncio
from datetime import timedelta
import pytest
import shop
from hipq import Invalid

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.fixture
def world(hipq_harness):
    return hipq_harness(shop.app)

async def test_handlers_run_on_the_loop_of_the_test(world):
    await shop.fetch.aenqueue("x", key="1")
    ran = await world.arun_until_idle()
    assert [run.name for run in ran] == ["fetch"]
    assert shop.loops.pop() is asyncio.get_running_loop()
    shop.fetch.enqueue("y", key="2", delay=60)
    shop.fetch.enqueue("z", key="3", delay=120)
    assert len(await world.aadvance(minutes=1)) == 1
    assert len(await world.aadvance_to(world.now + timedelta(minutes=1))) == 1
    world.assert_ok(shop.fetch, "3", result="z")
    assert await shop.app.aresult(await shop.fetch.aenqueue("result")) == "result"

async def test_what_is_not_awaited_says_what_to_do(world):
    shop.fetch.enqueue("x", key="1")
    with pytest.raises(Invalid, match="await arun_until_idle"):
        world.run_until_idle()
    await world.arun_until_idle()  # it had not begun
    assert world.assert_ok(shop.fetch, "1").attempt == 1

async def test_plain_handlers_need_no_await(world):
    shop.charge.enqueue(key="1")
    world.run_until_idle()
    world.advance(hours=1)
    world.assert_waiting(shop.charge, "1")

async def test_a_test_that_does_not_wait(world, monkeypatch):
    async def hangs(job):
        await asyncio.Event().wait()
    monkeypatch.setattr(shop.fetch.spec, "fn", hangs)
    shop.fetch.enqueue("x", key="1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.arun_until_idle(), 0.05)
    monkeypatch.undo()
    await world.arun_until_idle()
    world.assert_ok(shop.fetch, "1", result="x")
""")
    assert "4 passed" in run(project, "pytest", "-p", "no:cacheprovider", "-p", "anyio")


def test_loading_the_plugin_loads_nothing_of_it(project: Path) -> None:
    (project / "look.py").write_text("""
import sys
import hipq
before = set(sys.modules)
import pytest
with_pytest = set(sys.modules) - before
import hipq.testing.plugin
new = {name for name in set(sys.modules) - before - with_pytest}
print(sorted(new))
assert new == {"hipq.testing", "hipq.testing.plugin"}, new
heavy = ("hipq.stores.sqlite", "hipq.stores.postgres", "hipq.engine.loop", "asyncio", "psycopg")
assert not any(name.startswith(heavy) for name in sys.modules if name not in with_pytest)
""")
    run(project, "look")


def test_what_is_there_to_import() -> None:
    import hipq.testing

    for name in hipq.testing.__all__:
        assert getattr(hipq.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hipq.testing.nothing
    from hipq.testing import under_test

    assert hipq.testing.harness is under_test.harness
