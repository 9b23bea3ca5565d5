"""What a handler's policy says is what happens, in real contexts: limits, tries, variables, packages."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from hipq.daemon import upkeep as module
from hipq.daemon.daemon import Daemon
from hipq.errors import Invalid, OverQuota
from hipq.limits.handlers import PerHandler
from hipq.sandbox import trying
from hipq.sandbox.policy import Policy, RetryPolicy
from hipq.stores.filters import Filter
from tests.daemon.working import SETTINGS, add, daemon, ended, history, made, python
from tests.engine.conftest import url
from tests.engine.working import until

__all__ = ["url"]
PRINTS = {
    "python": "import os\nreturn os.environ['REGION'] + os.environ.get('HOME', '')",
    "node": "return process.env.REGION + process.env.HOME",
    "php": "return getenv('REGION') . getenv('HOME');",
    "shell": 'status 200 "$REGION$HOME"',
}


def put(served: Daemon, jobtype: str, lang: str, body: str, **policy: Any) -> None:
    policy.setdefault("retry", RetryPolicy(attempts=1))
    served.handlers.set("acme", jobtype, served.wrong_with, lang=lang, body=body, policy=Policy(**policy))


def result(served: Daemon, jobtype: str, payload: bytes = b"x") -> str:
    (job_id,) = add(served, jobtype, payload)
    row = ended(served, job_id)
    assert row.code == "ok", (row.error, row.history)
    return served.jobs.result(row).decode()


def test_variables_reach_every_language_and_nothing_else_changes(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        for lang, body in PRINTS.items():
            put(served, lang, lang, body, variables={"REGION": "Zürich\n'$x' "})
            assert result(served, lang).startswith("Zürich\n'$x' /tmp"), lang
        put(served, "other", "python", "import os\nreturn sorted(os.environ)")
        assert "REGION" not in result(served, "other")


@pytest.mark.skipif(SETTINGS.trust, reason="there is no sandbox here")
def test_a_handlers_variables_are_not_those_of_what_starts_its_sandbox(tmp_path: Path) -> None:
    """Bubblewrap runs outside, as the daemon's user, and its loader would do what LD_PRELOAD and the like say."""
    trace = Path(f"/tmp/hipq-trace-{os.getpid()}")
    with daemon(tmp_path) as served:
        variables = {"LD_DEBUG": "statistics", "LD_DEBUG_OUTPUT": str(trace)}
        put(served, "x", "shell", 'status 200 "$(ls /tmp)"', variables=variables)
        assert trace.name in result(served, "x"), "inside it is the handler's own business"
    assert list(trace.parent.glob(f"{trace.name}*")) == []


def test_handlers_that_differ_in_what_they_may_have_share_no_context(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        for name, region in (("a", "eu"), ("b", "us"), ("c", "eu")):
            served.handlers.set(
                "acme", name, lang="python", eid="shared", policy=Policy(variables={"REGION": region}),
                body="import os, builtins\nbuiltins.seen = getattr(builtins, 'seen', '') + job.type\n"
                "return builtins.seen + os.environ['REGION']",
            )  # fmt: skip
        assert [result(served, name) for name in "abc"] == ["aeu", "bus", "aceu"]


def test_its_time_out_ends_a_run_and_its_retry_policy_says_how_often(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        retry = RetryPolicy(after=0.01, most=0.02, attempts=3)
        put(served, "slow", "python", "import time\ntime.sleep(600)", run_timeout=0.3, retry=retry)
        began = time.monotonic()
        (job_id,) = add(served, "slow", b"x")
        row = ended(served, job_id)
        assert (row.code, row.exitcode, row.failures) == ("error", 504, 3)
        assert "0.3 s" in row.error
        assert time.monotonic() - began < 30
        put(served, "once", "shell", "exit 3")
        assert ended(served, *add(served, "once", b"x")).failures == 1


def test_it_gives_up_when_it_says(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        put(served, "gone", "shell", "exit 3", retry=RetryPolicy(after=0.05, most=0.05, give_up_after=1))
        (job_id,) = add(served, "gone", b"x")
        row = ended(served, job_id)
        assert row.update_time - row.create_time < 20e6
        assert row.failures > 1


def test_its_memory_and_its_processor_time_are_less_than_others_have(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:
        eats = "x = bytearray(150 << 20)\nreturn 'had it'"
        put(served, "small", "python", eats, memory=64)
        put(served, "large", "python", eats)
        assert ended(served, *add(served, "small", b"x")).code == "error"
        assert result(served, "large") == "had it"
        put(served, "busy", "python", "while True: pass", cpu=0.5)
        row = ended(served, *add(served, "busy", b"x"))
        assert row.exitcode == 504
        assert "0.5 s of processor time" in row.error


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (Policy(memory=513), "memory may be 512 at this daemon, not 513"),
        (Policy(run_timeout=4000), "run_timeout may be 3,600 at this daemon, not 4,000"),
        (Policy(cpu=601), "cpu may be 600 at this daemon"),
        (Policy(memory=3), "memory must be from 16 to"),
        (Policy(concurrency=-1), "concurrency must be from 1"),
        (Policy(retry=RetryPolicy(after=10, most=5)), "raise most"),
        (Policy(retry=RetryPolicy(attempts=-1)), "retry's attempts must be from 1"),
        (Policy(variables={"A-B": "x"}), "no name of a variable"),
        (Policy(variables={"HIPQ_JOB_ID": "x"}), "begins with HIPQ_"),
        (Policy(variables={"A": "x\0"}), "NUL"),
        (Policy(variables={"A": "x"}, secrets=("A",)), "both a variable and a secret"),
        (Policy(secrets=("A", "A")), "twice"),
        (Policy(secrets=("NOWHERE",)), "the secret NOWHERE is not set: `hipq secret set NOWHERE`"),
        (Policy(environment="science"), "no environment science (there are: none)"),
        (Policy(environment="../x"), "is no environment"),
        (Policy(network=("http://x",)), "in network is neither a host"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(policy: Policy, why: str, offline: Daemon) -> None:
    with pytest.raises(Invalid) as refused:
        offline.handlers.set("acme", "x", offline.wrong_with, lang="python", body="return 1", policy=policy)
    assert why in str(refused.value)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with daemon(tmp_path_factory.mktemp("offline")) as served:
        yield served


def test_an_http_handler_has_nothing_that_only_code_can_have(offline: Daemon) -> None:
    for policy in (Policy(variables={"A": "x"}), Policy(secrets=("A",)), Policy(memory=64), Policy(cpu=1)):
        with pytest.raises(Invalid, match="runs elsewhere: leave out"):
            offline.handlers.made("acme", "x", {"lang": "http", "body": "https://a.example", "policy": policy})
    with pytest.raises(Invalid, match="none for shell"):
        offline.handlers.made("acme", "x", {"lang": "shell", "body": "true", "policy": Policy(environment="a")})


# -- how many at a time ------------------------------------------------------------------------------------------------
def test_two_daemons_together_run_no_more_of_a_type_than_its_handler_says(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIDY_SECONDS", 0.05)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with daemon(tmp_path / "a", url) as one, daemon(tmp_path / "b", url) as other:
        nap = "import time\ntime.sleep(0.05)"
        put(one, "two", "python", nap, concurrency=2)
        assert PerHandler({"acme/two": 2}) in one.store.rules(one.queue.number).in_force, "before it is acknowledged"
        put(one, "free", "python", nap)
        ids = [job_id for place in (one, other) for job_id in add(place, "two", *[b"x"] * 15)]
        free = add(one, "free", *[b"x"] * 15)
        looks = {"two": [0], "free": [0]}
        executing = Filter(one.queue.number, phase="executing", limit=100)
        until_time = time.monotonic() + 120
        while len(one.store.find(Filter(one.queue.number, job_type="two", state="final", limit=100))) < len(ids):
            assert time.monotonic() < until_time
            for jobtype, seen in looks.items():
                seen.append(len(one.store.find(executing._replace(job_type=jobtype))))
        assert max(looks["two"]) == 2
        assert max(looks["free"]) > 2
        assert {ended(one, job_id).code for job_id in ids + free} == {"ok"}


def test_a_limit_goes_with_the_version_that_has_it(tmp_path: Path) -> None:
    with daemon(tmp_path) as served:

        def caps() -> list[Any]:
            return [one.caps for one in served.store.rules(served.queue.number).in_force if isinstance(one, PerHandler)]

        put(served, "x", "shell", "true", concurrency=3)
        (first,) = served.handlers.versions("acme", "x")
        assert caps() == [{"acme/x": 3}]
        put(served, "x", "shell", "true")
        assert caps() == []
        served.handlers.restore("acme", "x", first.id)
        assert caps() == [{"acme/x": 3}]
        served.handlers.delete("acme", "x")
        assert caps() == []


# -- packages ----------------------------------------------------------------------------------------------------------
def test_a_handler_has_the_packages_of_the_environment_it_names_and_cannot_change_them(tmp_path: Path) -> None:
    place = tmp_path / "science"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=120)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "abacus.py").write_text("def add(a, b): return a + b\n")
    (site / "abacus.py").chmod(0o666)
    package = place / "node_modules" / "abacus"
    package.mkdir(parents=True)
    (package / "index.js").write_text("exports.add = (a, b) => a + b;\n")
    contexts = replace(SETTINGS, environments={"science": str(place), "modules": str(tmp_path / "modules")})
    (tmp_path / "modules" / "node_modules").mkdir(parents=True)
    (tmp_path / "daemon").mkdir()
    with daemon(tmp_path / "daemon", contexts=contexts) as served:
        put(served, "p", "python", "import abacus\nreturn str(abacus.add(2, 3))", environment="science")
        put(served, "n", "node", "return `${require('abacus').add(2, 3)}`", environment="science")
        put(served, "m", "node", "return `${(await import('abacus')).default.add(2, 3)}`", environment="science")
        assert [result(served, one) for one in "pnm"] == ["5", "5", "5"]
        put(served, "without", "python", "import abacus")
        assert "No module named 'abacus'" in ended(served, *add(served, "without", b"x")).error
        if not SETTINGS.trust:
            writes = "import abacus, os\nopen(abacus.__file__, 'a')"
            put(served, "w", "python", writes, environment="science")
            assert "Read-only file system" in ended(served, *add(served, "w", b"x")).error
        with pytest.raises(Invalid, match="the environment modules has no packages for python"):
            put(served, "o", "python", "return 1", environment="modules")


def test_a_daemon_refuses_an_environment_without_packages(tmp_path: Path) -> None:
    contexts = replace(SETTINGS, environments={"empty": str(tmp_path)}, trust=False)
    (tmp_path / "daemon").mkdir()
    with pytest.raises(Invalid, match="the environment empty has no packages"):
        made(tmp_path / "daemon", contexts=replace(contexts, trust=True))
    with pytest.raises(Invalid, match=r"the environment empty has files of the daemon.s own, in .*daemon"):
        made(tmp_path / "daemon", contexts=replace(contexts, trust=False))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "node_modules").symlink_to(tmp_path)
    with pytest.raises(Invalid, match=r"the environment linked has files of the daemon.s own, in .*daemon"):
        made(
            tmp_path / "daemon",
            contexts=replace(SETTINGS, environments={"linked": str(tmp_path / "linked")}, trust=False),
        )


def test_an_environment_that_is_a_link_is_what_it_leads_to_now(tmp_path: Path) -> None:
    """An operator moves it to new packages, and no warm context goes on with the old ones."""
    for number in (1, 2):
        package = tmp_path / f"v{number}" / "node_modules" / "which"
        package.mkdir(parents=True)
        (package / "index.js").write_text(f"module.exports = 'v{number}'\n")
    link = tmp_path / "current"
    link.symlink_to("v1")
    (tmp_path / "daemon").mkdir()
    with daemon(tmp_path / "daemon", contexts=replace(SETTINGS, environments={"it": str(link)})) as served:
        put(served, "n", "node", "return require('which')", environment="it")
        assert result(served, "n") == "v1"
        (tmp_path / "new").symlink_to("v2")
        (tmp_path / "new").replace(link)
        assert result(served, "n") == "v2"


# -- trials ------------------------------------------------------------------------------------------------------------
def test_a_tenant_tries_one_handler_at_a_time_and_keeps_nobody_else_from_it(offline: Daemon) -> None:
    began = threading.Event()
    slow = offline.handlers.made("acme", "x", {"lang": "shell", "body": "sleep 2"})
    quick = offline.handlers.made("bob", "x", {"lang": "shell", "body": 'status 200 "$(cat)"'})
    reports: list[int] = []

    def hold() -> None:
        began.set()
        reports.append(offline.tried(slow, b"").status)

    holding = threading.Thread(target=hold)
    holding.start()
    began.wait()
    until(lambda: trying._line == ["acme"])
    with pytest.raises(OverQuota, match="of this tenant is tried out right now"):
        offline.tried(slow, b"")
    assert offline.tried(quick, b"it").data == b"it"
    holding.join()
    assert reports == [200]
    assert trying._line == []


def test_who_comes_third_waits_for_a_turn_and_has_it_before_those_who_come_again(offline: Daemon) -> None:
    """Two tenants that go on and on keep nobody from it."""
    order, done = list[str](), threading.Event()

    def go_on(tenant: str) -> None:
        while not done.is_set():
            offline.tried(offline.handlers.made(tenant, "x", {"lang": "shell", "body": "sleep 0.3"}), b"")
            order.append(tenant)

    threads = [threading.Thread(target=go_on, args=(tenant,)) for tenant in ("acme", "bob")]
    for one in threads:
        one.start()
    until(lambda: len(trying._line) == 2)
    quick = offline.handlers.made("cyd", "x", {"lang": "shell", "body": 'status 200 "$(cat)"'})
    for _ in range(3):
        before = len(order)
        assert offline.tried(quick, b"it").data == b"it"
        assert len(order) - before <= 3, "each of them once, and one more that ends at the same time"
    done.set()
    for one in threads:
        one.join()


def test_the_line_has_an_end(offline: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "_line", [f"t{number}" for number in range(trying.IN_LINE)])
    with pytest.raises(OverQuota, match="8 tenants try handlers out, or wait for that: try again in a minute"):
        offline.tried(offline.handlers.made("acme", "x", {"lang": "shell", "body": "true"}), b"")


# -- versions under load -----------------------------------------------------------------------------------------------
def test_a_rollback_under_load_loses_nothing_and_what_runs_finishes_on_its_version(url: str, tmp_path: Path) -> None:
    """Every job says which version ran it; the history says the same. While jobs come and run, versions change."""
    with daemon(tmp_path, url, concurrency=4) as served:
        python(served, "x", "import time\ntime.sleep(0.01)\nreturn 'first'")
        (first,) = served.handlers.versions("acme", "x")
        bodies = {first.id: "first"}
        ids = add(served, "x", *[b"x"] * 50)
        for number in range(6):
            if number % 2:
                served.handlers.restore("acme", "x", first.id)
            else:
                body = f"import time\ntime.sleep(0.01)\nreturn 'v{number}'"
                made = served.handlers.set("acme", "x", lang="python", body=body)
                bodies[made.id] = f"v{number}"
            ids += add(served, "x", *[b"x"] * 50)
            time.sleep(0.1)
        rows = [ended(served, job_id) for job_id in ids]
        assert {row.code for row in rows} == {"ok"}
        said = [served.jobs.result(row).decode() for row in rows]
        ran_by = [[entry for entry in history(row) if entry["event"] == "ran"][-1]["version"] for row in rows]
        assert [bodies[version] for version in ran_by] == said
        assert all(row.attempt == 1 for row in rows), "nothing ran twice"
        assert len(set(said)) > 1
        assert said[-1] == "first", "what is added after a rollback runs on the version that is back"
