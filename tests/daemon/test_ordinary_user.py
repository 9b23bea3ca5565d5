"""A whole daemon that an ordinary user has started: its handlers are as walled in as root's.

Where the tests are that user themselves, all other tests of daemons with a sandbox are this one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hipq.daemon.handlers.keys import new_key
from hipq.sandbox.bubblewrap import why_no_sandbox
from tests.daemon.api_serving import Daemon, Site, Tenant, eventually
from tests.executors.running import ORDINARY

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="not root here: every daemon of these tests is an ordinary user's"),
    pytest.mark.skipif(bool(why_no_sandbox()), reason="there is no sandbox here"),
]
SEEN = """
import os
def opened(path):
    try:
        return open(path).read()
    except OSError as error:
        return type(error).__name__
def limit(name):
    import resource
    return list(resource.getrlimit(getattr(resource, name)))
return {
    "uid": os.getuid(), "secret": os.environ.get("BANK"), "others": list(filter(str.isdigit, os.listdir("/proc"))),
    "passwd": opened("/etc/passwd"), "key": opened(payload), "environ": opened("/proc/1/environ"),
    "core": limit("RLIMIT_CORE"), "root": os.geteuid() == 0,
}
"""


class Ordinary(Daemon):
    """It gives up root before it begins."""

    command = ("setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", sys.executable)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where that user may go: the folders of tests are their owner's."""
    with tempfile.TemporaryDirectory(prefix="hipq-ordinary-") as name:
        yield Path(name)


def test_its_handlers_see_nothing_of_it_and_nothing_of_each_other(folder: Path) -> None:
    keys = folder / "keys"
    keys.write_text(new_key())
    keys.chmod(0o600)
    site = Site(f"sqlite:///{folder}/daemon.db", folder)
    for path in (folder, *folder.iterdir()):
        os.chown(path, ORDINARY, ORDINARY)
    daemon = Ordinary(folder, site.url, "--secrets-key-file", str(keys), trust=False)
    site.daemons.append(daemon)
    status = Path(f"/proc/{daemon.process.pid}/status").read_text()
    assert f"Uid:\t{ORDINARY}\t{ORDINARY}" in status, "it is no root"
    acme, other = site.tenant(), site.tenant()
    assert acme("PUT", "/v1/{}/secrets/BANK", b"a secret of the bank").status == 200
    put(acme, "see", SEEN, secrets=["BANK"])
    put(other, "see", SEEN)
    mine, theirs = (seen(tenant, str(keys)) for tenant in (acme, other))
    assert (mine["secret"], theirs["secret"]) == ("[secret BANK]", None)
    for one in (mine, theirs):
        assert not one["root"]
        assert one["uid"] == ORDINARY
        assert one["passwd"] == one["key"] == "FileNotFoundError"
        assert len(one["others"]) <= 2, "the first of the sandbox, and itself"
        assert "bank" not in one["environ"]
        assert max(one["core"]) <= 1
    put(other, "hog", "x = bytearray(900 << 20)\nreturn len(x)")
    assert job(other, "hog", b"x")["code"] != "ok", "what it may use is bounded"
    assert daemon.stop() == 0
    site.close()


def put(tenant: Tenant, jobtype: str, body: str, **policy: Any) -> None:
    policy["retry"] = {"attempts": 1}
    got = tenant("PUT", f"/v1/{{}}/handlers/{jobtype}", {"lang": "python", "body": body, "policy": policy})
    assert got.status == 200, got


def job(tenant: Tenant, jobtype: str, payload: bytes) -> dict[str, Any]:
    (job_id,) = tenant.add(jobtype, payload)
    return dict(eventually(lambda: (found := tenant.job(job_id))["state"] == "final" and found))


def seen(tenant: Tenant, payload: str) -> dict[str, Any]:
    found = job(tenant, "see", payload.encode())
    assert found["code"] == "ok", found
    return dict(tenant("GET", f"/v1/{{}}/jobs/{found['id']}/result").json)
