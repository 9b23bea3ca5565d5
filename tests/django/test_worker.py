"""`manage.py hipq_worker` as a process that is killed, stopped, and busy beside others."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import click
import psycopg
import pytest

from hipq.cli.worker import worker as hipq_worker
from tests.databases import clean
from tests.django.lab import MIGRATED, PATIENCE, PRELUDE, Lab, mysql, postgres, sqlite
from tests.servers import clean_database, free_port


@pytest.fixture
def lab(store_kind: str, tmp_path: Path) -> Iterator[Lab]:
    with clean(store_kind, tmp_path / "lab.db") as url:
        servers = {"postgres": postgres, "mariadb": mysql}
        found = servers[store_kind](url) if store_kind in servers else sqlite(tmp_path / "lab.db")
        yield Lab(tmp_path, found, url)


def began(lab: Lab) -> list[Path]:
    return sorted(file for file in lab.folder.glob("began-*") if file.read_text())


def lingering(lab: Lab) -> int:
    return int(lab.do(f"out = tasks.linger.enqueue({str(lab.folder)!r}, 600).id"))


def test_a_task_whose_worker_was_killed_runs_again(lab: Lab) -> None:
    job_id = lingering(lab)
    with lab.worker("--lease", "2") as first:
        lab.until(lambda: began(lab))
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE)
    with lab.jobs() as jobs, lab.worker("--lease", "2") as second:
        assert jobs.job(job_id).state == "running"
        lab.until(lambda: len(began(lab)) == 2)
        (lab.folder / "go").touch()
        lab.until(lambda: jobs.job(job_id).state == "final")
        second.send_signal(signal.SIGTERM)
        assert second.wait(PATIENCE) == 0
        job = jobs.job(job_id)
    assert (job.code, job.attempt) == ("ok", 2)
    assert job.result not in (first.pid, second.pid)  # apart from others, since it was there when a worker died


def test_a_signal_lets_running_tasks_finish(lab: Lab) -> None:
    job_id = lingering(lab)
    with lab.jobs() as jobs, lab.worker() as worker:
        lab.until(lambda: began(lab))
        worker.send_signal(signal.SIGTERM)
        lab.until(lambda: not jobs.store.engines() or "stopping" in lab.said())
        assert jobs.job(job_id).state == "running"
        assert worker.poll() is None
        (lab.folder / "go").touch()
        assert worker.wait(PATIENCE) == 0
        job = jobs.job(job_id)
    assert (job.code, job.attempt, job.result) == ("ok", 1, worker.pid)


def test_a_second_signal_gives_them_back(lab: Lab) -> None:
    job_id = lingering(lab)
    with lab.jobs() as jobs, lab.worker() as worker:
        lab.until(lambda: began(lab))
        while worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        job = jobs.job(job_id)
    assert (job.state, job.phase, job.attempt, job.failures) == ("retry", "ready", 1, 0)


def test_what_is_committed_is_seen_soon(lab: Lab) -> None:
    """A worker that has nothing to do is woken by the commit, and by no enqueue before it."""
    adding = """
with transaction.atomic():
    id = tasks.note.enqueue("one").id
    time.sleep(1)
    early = Note.objects.exists()
committed = time.monotonic()
while not Note.objects.exists() and time.monotonic() - committed < 60:
    time.sleep(0.002)
out = [early, time.monotonic() - committed]
"""
    lab.manage("migrate")
    with lab.worker() as worker:
        lab.until(lambda: "engine started" in lab.said())
        early, seconds = lab.do(adding)
        print(f"ran {seconds * 1000:.0f} ms after the commit")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    assert not early
    assert seconds < 60


def test_several_programs_add_while_it_works(lab: Lab) -> None:
    """And undo every third transaction: a task is there exactly if what was written with it is."""
    adding = """
for number in range(30):
    with transaction.atomic():
        Note.objects.create(text=f"own-NAME-{number}")
        tasks.note.enqueue(f"NAME-{number}")
        transaction.set_rollback(number % 3 == 2)
"""
    wanted = sorted(f"{name}-{number}" for name in "ab" for number in range(30) if number % 3 != 2)
    lab.manage("migrate")
    programs = [PRELUDE + MIGRATED + adding.replace("NAME", name) for name in "ab"]
    with lab.jobs() as jobs, lab.worker() as worker, lab.started("-c", programs[0]) as a:
        with lab.started("-c", programs[1]) as b:
            assert (a.wait(PATIENCE), b.wait(PATIENCE)) == (0, 0), lab.said()
        lab.until(lambda: jobs.jobs.count("default", state="final") == len(wanted))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    notes = lab.do("out = sorted(note.text for note in Note.objects.all())")
    assert [text for text in notes if not text.startswith("own-")] == wanted
    assert [text.removeprefix("own-") for text in notes if text.startswith("own-")] == wanted


def test_without_tables_it_says_what_to_do(tmp_path: Path) -> None:
    with clean_database() as url:
        lab = Lab(tmp_path, postgres(url), url)
        said = lab.manage("hipq_worker", "--batch", status=1)
        assert "TASKS['default']: postgresql://" in said
        assert "has no hipq tables yet: run manage.py migrate" in said
        assert "no issues" in lab.manage("check", "--database", "default")  # Django's own are missing, too
        with psycopg.connect(url) as conn:
            conn.execute("CREATE TABLE django_migrations ()")
        warned = lab.manage("check", "--database", "default")
        assert "hipq.W001" in warned
        assert "manage.py migrate" in warned
        assert "default: 0001" in lab.manage("hipq_migrate")
        said = lab.manage("hipq_worker", "--batch", "-c", "2", "--log-format", "json")
        assert "tasks of default, mails in Django's database 'default'" in said
        assert '"event": "engine started"' in said


def test_a_backend_that_is_not_there_is_told_which_are(tmp_path: Path) -> None:
    lab = Lab(tmp_path, sqlite(tmp_path / "lab.db"))
    with lab.worker("--backend", "defualt") as worker:
        assert worker.wait(PATIENCE) == 1
    assert "TASKS has no 'defualt': it has " in lab.said()


def test_a_worker_finds_tasks_that_nobody_has_imported(lab: Lab) -> None:
    """Those of which there are jobs when it starts, and those of which it hears later."""
    adding = f"from lab import hidden\nout = hidden.found.enqueue({str(lab.folder)!r}).id"
    first = lab.do(adding)
    lab.manage("hipq_worker", "--until-empty")
    with lab.worker() as worker:
        lab.until(lambda: "engine started" in lab.said())
        (lab.folder / "found").unlink()
        second = lab.do(adding)
        lab.until(lambda: (lab.folder / "found").exists())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    with lab.jobs() as jobs:
        assert [(jobs.job(int(job_id)).type, jobs.job(int(job_id)).code) for job_id in (first, second)] == [
            ("lab.hidden.found", "ok")
        ] * 2


def test_a_task_learned_late_runs_apart_after_it_killed_a_worker(lab: Lab) -> None:
    """The process that runs it then was forked before the worker knew the task."""
    lab.manage("migrate")
    with lab.worker("--lease", "2") as first, lab.worker("--lease", "2") as second:
        lab.until(lambda: lab.said().count("engine started") == 2)
        job_id = int(lab.do("from lab import hidden\nout = hidden.kill_its_process.enqueue().id"))
        lab.until(lambda: first.poll() is not None or second.poll() is not None)
        with lab.jobs() as jobs:
            lab.until(lambda: jobs.job(job_id).state == "final")
            job = jobs.job(job_id)
        left = second if first.poll() is not None else first
        left.send_signal(signal.SIGTERM)
        assert left.wait(PATIENCE) == 0
    assert (job.code, job.attempt, job.crashes) == ("ok", 2, 1), job.error
    assert job.result not in (first.pid, second.pid)


def test_several_processes_of_one_command(lab: Lab) -> None:
    """They share the tasks; one that is killed is replaced; one signal ends all of them."""
    ids = lab.do(f"out = [tasks.linger.enqueue({str(lab.folder)!r}, 600).id for _ in range(2)]")
    with lab.worker("--processes", "2", "-c", "1", "--lease", "3", "--log-format", "json") as parent:
        lab.until(lambda: len(began(lab)) == 2)
        first, second = sorted(int(file.read_text()) for file in began(lab))
        assert len({parent.pid, first, second}) == 3
        os.kill(first, signal.SIGKILL)
        lab.until(lambda: len(began(lab)) == 3)
        assert '"event": "worker replaced"' in lab.said()
        assert lab.said().count("tasks of default, mails in") == 1
        parent.send_signal(signal.SIGTERM)
        lab.until(lambda: lab.said().count('"event": "engine stopping"') == 2)
        (lab.folder / "go").touch()
        assert parent.wait(PATIENCE) == 0, lab.said()
    with lab.jobs() as jobs:
        found = [jobs.job(int(job_id)) for job_id in ids]
    assert sorted((job.code, job.attempt) for job in found) == [("ok", 1), ("ok", 2)]


def test_processes_end_with_the_one_that_started_them(lab: Lab) -> None:
    lab.manage("migrate")
    with lab.worker("--processes", "2", "--log-format", "json") as parent:
        lab.until(lambda: lab.said().count('"event": "engine started"') == 2)
        parent.kill()
        parent.wait(PATIENCE)
        lab.until(lambda: lab.said().count('"event": "engine stopped"') == 2)


def test_several_processes_until_there_is_nothing_to_do(lab: Lab) -> None:
    ids = lab.do("out = [tasks.add.enqueue(n).id for n in range(20)]")
    lab.manage("hipq_worker", "--processes", "2", "--batch")
    with lab.jobs() as jobs:
        assert [jobs.job(int(job_id)).result for job_id in ids] == list(range(20))


def test_several_processes_end_if_something_is_wrong_with_the_settings(tmp_path: Path) -> None:
    lab = Lab(tmp_path, sqlite(tmp_path / "lab.db"), backend={"OPTIONS": {"app": "lab.nowhere:app"}})
    said = lab.manage("hipq_worker", "--processes", "2", status=1)
    assert "(hipq.E001) TASKS['default']: OPTIONS['app'] cannot be imported: No module named 'lab.nowhere'" in said
    bad = Lab(tmp_path, sqlite(tmp_path / "lab.db"))
    assert "processes must be a whole number from 1" in bad.manage("hipq_worker", "--processes", "0", status=2)
    assert "no queue 'nothing'" in bad.manage("hipq_worker", "--processes", "2", "-q", "nothing", status=1)


def test_it_takes_what_hipq_worker_takes(lab: Lab) -> None:
    shown = [one for one in hipq_worker.params if isinstance(one, click.Option) and not one.hidden]
    options = {name for one in shown for name in (*one.opts, *one.secondary_opts)}
    said = lab.manage("hipq_worker", "--help")
    assert {name for name in options if name.startswith("--")} <= set(re.findall(r"--[\w-]+", said)) | {"--help"}
    lab.manage("migrate")
    lab.do("out = tasks.add.enqueue(1).id")
    words = ["--lease", "5s", "--wait", "0", "--drain", "1m", "--no-listen", "--metrics", f":{free_port()}"]
    said = lab.manage("hipq_worker", "--until-empty", "--log-success", *words)
    assert " INFO " in said
    assert "type=lab.tasks.add" in said
    assert "lease must be a number of seconds" in lab.manage("hipq_worker", "--lease", "soon", status=2)


def test_one_command_for_several_backends(tmp_path: Path) -> None:
    lab = Lab(tmp_path, sqlite(tmp_path / "lab.db"))
    own = ("--settings", "lab.own_settings")
    lab.manage("migrate", *own)
    task = lab.do("out = tasks.add.enqueue(1).id")
    job = lab.do("from lab.payments import receipt\nout = int(receipt.enqueue({'of': 'order-1'}))")
    said = lab.manage("hipq_worker", "--backend", "default,own", "--batch", *own)
    assert "tasks of charges in lab.payments:app" in said
    with lab.jobs() as jobs:
        assert jobs.job(int(task)).result == 1
        assert "receipt of order-1" in str(jobs.store.get(job))


def test_a_database_that_is_away_is_waited_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, postgres("postgresql://nobody@127.0.0.1:1/nothing"), "postgresql://nobody@127.0.0.1:1/nothing")
    with lab.worker("--log-format", "json") as worker:
        lab.until(lambda: '"waiting": "to start"' in lab.said())
        assert worker.poll() is None
    assert "Connection refused" in lab.manage("hipq_worker", "--wait", "0", status=1)


def test_it_starts_again_when_code_changes(tmp_path: Path) -> None:
    lab = Lab(tmp_path, sqlite(tmp_path / "lab.db"))
    lab.manage("migrate")
    with lab.worker("--reload") as worker:
        lab.until(lambda: "engine started" in lab.said())
        (tmp_path / "more.py").write_text("# changed")
        lab.until(lambda: lab.said().count("engine started") == 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    assert "reloading" in lab.said()


def test_a_failure_is_told_once_and_a_format_in_vain_is_told(tmp_path: Path) -> None:
    lab = Lab(tmp_path, sqlite(tmp_path / "lab.db"))
    lab.manage("migrate")
    lab.do("out = tasks.divide.enqueue(0).id")
    said = lab.manage("hipq_worker", "--batch", "--log-format", "json", "--verbosity", "0")
    assert [json.loads(line)["event"] for line in said.splitlines()] == ["gave up"]
    (tmp_path / "loud.py").write_text(
        "from lab.settings import *\n"
        "LOGGING = {'version': 1, 'handlers': {'console': {'class': 'logging.StreamHandler'}},"
        " 'loggers': {'hipq': {'handlers': ['console']}}}\n"
    )
    said = lab.manage("hipq_worker", "--batch", "--log-format", "json", "--settings", "loud", "--pythonpath", ".")
    assert "--log-format json changes nothing: LOGGING has a handler for hipq's log" in said
    assert "'hipq.observe.logs.Formatter'" in said


def test_a_task_that_was_added_without_django(tmp_path: Path) -> None:
    """As a cron schedule adds one: what it leaves out is empty, and data of another form are told."""
    lab = Lab(tmp_path, sqlite(tmp_path / "lab.db"))
    assert "default: up to date" in lab.manage("hipq_migrate")
    with lab.jobs() as jobs:
        queue = jobs.queues[0]
        good, bad = queue.enqueue("lab.tasks.add", {"args": [3]}), queue.enqueue("lab.tasks.add", {"n": 2})
        none = queue.enqueue("lab.tasks.echo")
        lab.manage("hipq_worker", "--batch")
        assert (jobs.job(good).result, jobs.job(none).result) == (3, [[], {}])
        assert 'the data of a task are {"args": [...], "kwargs": {...}}, not' in str(jobs.job(bad).fault)
