"""Jobs of a daemon's tenants on the command line: a job is shown with its tenant, and `--tenant` chooses one tenant."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from hipq import Hipq, Invalid, Wait
from hipq.cli.main import cli
from hipq.daemon import job_factory


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def said(*words: str) -> tuple[str, list[str]]:
    """What is on standard output, and the lines on standard error but for which database it is."""
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout, [line for line in done.stderr.splitlines() if not line.startswith("database: ")]


def test_a_tenant_is_shown_and_can_be_chosen(url: str) -> None:
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


@pytest.fixture
def daemon(url: str) -> str:
    """The URL of a daemon's database: two tenants have each a job that has ended, a job that has not, and an answer
    that no job has taken."""
    app = Hipq("daemon", url)
    queue = app.queue("jobs")
    app.migrate()
    for tenant in ("acme", "other"):
        for key in ("old", "new"):
            options = job_factory.Options(key=key)
            new = job_factory.job(queue.number, tenant, "mail", b"x", options, app.store.now())
            (stored,) = app.store.enqueue([new])
            if key == "old":
                app.cancel(stored.id)
        answer = queue.arrived("mail", "early", {"from": tenant}, answer_id="evt-1")
        app.answers.deliver([msgspec.structs.replace(answer, tenant=tenant)])
    app.close()
    return url


def test_answers_are_shown_with_their_tenant_and_keep_it(daemon: str) -> None:
    assert "tenant" in run("answers", "list", "--db", daemon).splitlines()[0]
    (found,) = json.loads(run("answers", "list", "--db", daemon, "--tenant", "acme", "--json"))
    assert (found["tenant"], found["data"]) == ("acme", {"from": "acme"})
    run("answers", "replay", "--db", daemon, str(found["number"]))
    run("answers", "rekey", "--db", daemon, str(found["number"] + 2), "new")
    (found,) = json.loads(run("answers", "list", "--db", daemon, "--tenant", "acme", "--json"))
    assert (found["tenant"], found["key"]) == ("acme", "new")
    (job,) = json.loads(run("job", "list", "--db", daemon, "--tenant", "acme", "--key", "new", "--json"))
    assert found["job"] == job["id"]
    assert "tenant" in run("answers", "show", "--db", daemon, str(found["number"]))
    run("answers", "drop", "--db", daemon, "--tenant", "acme", "--yes")
    (left,) = json.loads(run("answers", "list", "--db", daemon, "--json"))
    assert left["tenant"] == "other"
    assert "no answers" in said("answers", "list", "--db", daemon, "--tenant", "acme")[1][0]


def test_prune_deletes_jobs_of_one_tenant(daemon: str) -> None:
    assert run("prune", "--db", daemon, "--older-than", "0s", "--tenant", "nobody", "--yes") == "deleted 0 jobs\n"
    assert run("prune", "--db", daemon, "--older-than", "0s", "--tenant", "acme", "--yes") == "deleted 1 job\n"
    left = json.loads(run("job", "list", "--db", daemon, "--state", "final", "--json"))
    assert [one["tenant"] for one in left] == ["other"]


def test_a_pause_names_a_tenants_lane_and_says_if_nothing_comes_under_it(daemon: str) -> None:
    pause, resume = ("queue", "pause", "--db", daemon, "jobs"), ("queue", "resume", "--db", daemon, "jobs")
    assert said(*pause, "--tenant", "acme", "--type", "mail") == ("paused in jobs: lane acme/mail\n", [])
    assert said(*resume, "--tenant", "acme", "--type", "mail") == ("paused in jobs: nothing\n", [])
    assert "no job in jobs has the lane acme/mial now" in said(*pause, "--tenant", "acme", "--type", "mial")[1][0]
    assert "there was no such pause" in said(*resume, "--lane", "acme/mail")[1][0]
    for words in (("--tenant", "acme"), ("--tenant", "acme", "--lane", "x", "--type", "mail")):
        done = CliRunner().invoke(cli, [*pause, *words])
        assert (done.exit_code, "--tenant goes with --type" in done.stderr) == (2, True)
    limited = said("queue", "limit", "--db", daemon, "jobs", "5", "--share", "x/y=50,acme/mail=50")[1]
    assert ["no job in jobs has the lane x/y now" in line for line in limited] == [True]


def test_an_answer_is_for_the_tenant_that_is_named(url: str) -> None:
    app = Hipq("daemon", url)
    queue = app.queue("jobs")
    queue.job("mail")(lambda _: Wait())
    app.migrate()
    ids = {}
    for tenant in ("acme", "other"):
        options = job_factory.Options(key="order-17")
        new = job_factory.job(queue.number, tenant, "mail", b"x", options, app.store.now())
        ids[tenant] = app.store.enqueue([new])[0].id
    app.run(until_empty=True)
    words = ("answer", "--db", url, "jobs", "mail", "order-17", '"sent"')
    assert run(*words) == "buffered\n"  # no job without a tenant has the key
    assert run(*words, "--tenant", "nobody") == "buffered\n"
    assert run(*words, "--tenant", "acme") == "matched\n"
    assert (app.job(ids["acme"]).result, app.job(ids["other"]).phase) == ("sent", "waiting")
    named = {"queue": "jobs", "type": "mail", "key": "order-17", "data": "seen", "tenant": "other"}
    assert app.answer_many([named]) == ["matched"]
    assert app.job(ids["other"]).result == "seen"
    app.close()


def test_answers_are_counted_for_one_tenant(daemon: str) -> None:
    def buffered(*words: str) -> int:
        rows = json.loads(run("answers", "count", "--db", daemon, "--json", *words))
        return {row["state"]: int(row["answers"]) for row in rows}["buffered"]

    assert (buffered(), buffered("--tenant", "acme"), buffered("--tenant", "nobody")) == (2, 1, 0)
    assert buffered("--tenant", "other", "-q", "jobs") == 1


@pytest.mark.parametrize("words", [("answer", "jobs", "mail", "k"), ("answers", "count"), ("answers", "list")])
def test_an_empty_tenant_is_refused(daemon: str, words: tuple[str, ...]) -> None:
    """Otherwise a variable of a script that is not set would mean all tenants, or none."""
    done = CliRunner().invoke(cli, [*words, "--db", daemon, "--tenant", ""])
    assert done.exit_code == 2 or isinstance(done.exception, Invalid)
