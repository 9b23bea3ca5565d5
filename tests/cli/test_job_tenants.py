"""Jobs of a daemon's tenants on the command line: a job is shown with its tenant, and `--tenant` chooses one tenant."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from hipq import Hipq
from hipq.cli.main import cli
from hipq.daemon import job_factory


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_tenant_is_shown_and_can_be_chosen(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/daemon.db"
    app = Hipq("daemon", url)
    queue = app.queue("jobs")
    app.migrate()
    for tenant in ("acme", "other", "acme"):
        app.store.enqueue([job_factory.job(queue.number, tenant, "mail", b"x", job_factory.PLAIN, app.store.now())])
    app.close()
    assert "tenant" in run("job", "list", "--db", url).splitlines()[0]
    found = json.loads(run("job", "list", "--db", url, "--tenant", "acme", "--json"))
    assert [one["tenant"] for one in found] == ["acme", "acme"]
    assert "2 of 2" in run("job", "cancel", "--db", url, "--tenant", "acme", "--yes")
    left = json.loads(run("job", "list", "--db", url, "--state", "initial", "--json"))
    assert [one["tenant"] for one in left] == ["other"]
    assert "no job is like that" in run("job", "cancel", "--db", url, "--tenant", "nobody", "--yes")
