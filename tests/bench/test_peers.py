"""A peer that does not install, hangs or breaks is named with its reason, and holds nobody up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers import HERE, PEERS, POSTGRES, SQLITE, Listed, driven, environment
from bench.peers.company import Company
from bench.peers.driven import Driven

DRIVER = f"""
import os, subprocess, sys, time
sys.path.insert(0, {str(HERE)!r})
from driver import Peer, serve

class Fake(Peer):
    package = "pip"
    setting = "none"

    def enqueue(self, count):
        pass

    def enqueue_many(self, count):
        os._exit(3)

    def fill(self, count):
        pass

    def drain(self, count):
        if count == 1:
            child = subprocess.Popen(["sleep", "600"])
            with open(self.address, "w") as file:
                file.write(str(child.pid))
            time.sleep(600)
        return 0.5

    def check_done(self, count):
        assert count != 2, "1 job left"

    def clear(self):
        print("noise on stdout")

    def latency(self, count):
        return [1.0] * count

serve(Fake)
"""


@pytest.fixture(autouse=True)
def _environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (driven, environment):
        monkeypatch.setattr(module, "ENVIRONMENTS", tmp_path / ".bench")


def fake(folder: Path, text: str = DRIVER) -> Listed:
    (folder / "fake.py").write_text(text)
    listed = Listed("fake", SQLITE, str(folder / "fake"), "fake", ("nothing",), "none", 10)
    python = folder / ".bench" / "fake" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (folder / ".bench" / "fake" / "installed").write_text("nothing")
    return listed


@pytest.fixture
def company(tmp_path: Path) -> Iterator[Company]:
    company = Company(patience=3.0)
    company.install([fake(tmp_path)])
    company.start(lambda _: str(tmp_path / "address"))
    yield company
    company.close()


def drain(company: Company, count: int) -> float | None:
    (peer,) = company.running
    return company.ask(peer, lambda peer: peer.rate("drain", count), "drain")


def test_a_peer_is_described_and_measured(company: Company) -> None:
    (described,) = company.described
    assert (described.name, described.store, described.setting) == ("fake", SQLITE, "none")
    assert drain(company, 10) == 20.0
    assert company.ask(company.running[0], lambda peer: peer.latency(2), "latency") == [1.0, 1.0]
    assert not company.failures


def test_one_that_lost_a_job_is_named_and_asked_for_the_rest(company: Company) -> None:
    assert drain(company, 2) is None
    assert company.failures == [("fake", SQLITE, "drain: AssertionError: 1 job left")]
    assert drain(company, 10) == 20.0


def test_one_that_ends_is_named_and_not_asked_again(company: Company) -> None:
    assert company.ask(company.running[0], lambda peer: peer.rate("enqueue_many", 1), "enqueue_many") is None
    assert company.failures == [("fake", SQLITE, "enqueue_many: its driver ended (its log, fake-SQLite.log, says why)")]
    assert not company.running


def test_one_that_hangs_is_killed_with_what_it_started_and_named(company: Company, tmp_path: Path) -> None:
    began = time.monotonic()
    assert drain(company, 1) is None
    assert time.monotonic() - began < 60
    assert company.failures == [("fake", SQLITE, "drain: did not answer within 3 s")]
    assert not company.running
    assert gone(int((tmp_path / "address").read_text()))


def gone(process: int) -> bool:
    """Or a zombie that nobody has buried yet."""
    for _ in range(1000):
        try:
            os.kill(process, 0)
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_one_that_does_not_start_is_named(tmp_path: Path) -> None:
    company = Company()
    company.install([fake(tmp_path, "raise SystemExit('no')")])
    company.start(lambda _: "")
    assert [(name, store) for name, store, _ in company.failures] == [("fake", SQLITE)]
    assert not company.running
    assert not company.described


def test_those_that_do_not_install_are_named_and_tried_once_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def fail(_program: str, folder: Path) -> None:
        tried.append(folder.name)
        environment._run(sys.executable, "-c", "import sys; sys.exit('ERROR: no wheel at https://there/x for you')")

    with monkeypatch.context() as patch:
        patch.setattr(environment, "_made", fail)
        company = Company()
        listed = Listed("one", SQLITE, "one", "shared", ("thing",), "none", 10)
        company.install([listed, listed._replace(name="two")])
    reason = "does not install: no wheel at (a URL) for you"
    assert company.failures == [("one", SQLITE, reason), ("two", SQLITE, reason)]
    assert tried == ["shared"]
    company.start(lambda _: "")
    assert not company.running


def test_one_whose_python_is_not_here_is_named() -> None:
    company = Company()
    company.install([Listed("new", SQLITE, "new", "new", ("thing",), "none", 10, python="3.99")])
    ((name, _, reason),) = company.failures
    assert (name, reason[:18]) == ("new", "needs Python 3.99:")


def test_every_peer_has_its_driver_and_a_target_names_one_of_them() -> None:
    assert all((HERE / f"{listed.driver}.py").exists() for listed in PEERS)
    names = [(listed.name, listed.store) for listed in PEERS]
    assert len(set(names)) == len(names)
    assert {("huey", SQLITE), ("pgqueuer", POSTGRES)} <= set(names)
    assert Driven.__init__.__defaults__ == (driven.PATIENCE,)  # nobody waits for one without an end
