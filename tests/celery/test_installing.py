"""Into an app and out of it; settings that are refused; a database that is not there."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from celery import Celery

import hipq.celery
from hipq import Hipq
from hipq.errors import Invalid, SchemaError, StoreUnavailable
from tests.celery.messages import Case, ids, kept_in, publish_all
from tests.servers import free_port, fresh_database

HOUR = 3600


def test_to_install_it_twice_is_harmless_and_to_uninstall_it_too(case: Case, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/kept.db"
    kept = hipq.celery.install(case.app, url)
    assert hipq.celery.install(case.app, url) is kept
    assert len(case.app.steps["worker"]) == 1
    with pytest.raises(Invalid, match="with other settings: uninstall it first"):
        hipq.celery.install(case.app, url, further_than=5)
    case.add.apply_async(task_id="kept", countdown=HOUR)
    assert ids(kept) == {"kept"}
    for _ in range(2):
        hipq.celery.uninstall(case.app)
    assert not case.app.steps["worker"]
    case.add.apply_async(task_id="plain", countdown=HOUR)
    case.app.control.revoke("kept")
    assert case.got(1).keys() == {"plain"}
    with pytest.raises(Invalid, match="not installed"):
        hipq.celery.cancel(case.app, "kept")
    again = hipq.celery.install(case.app, url, further_than=5)
    assert ids(again) == {"kept"}
    hipq.celery.uninstall(case.app)


def test_it_may_be_installed_before_the_app_is_configured(tmp_path: Path) -> None:
    app = Celery("late", set_as_current=False)
    kept = hipq.celery.install(app, f"sqlite:///{tmp_path}/kept.db")
    assert not app.configured
    app.config_from_object({"broker_url": "memory://", "task_default_queue": "late", "timezone": "Asia/Tokyo"})
    app.send_task("any", task_id="far", countdown=HOUR)
    assert json.loads(kept.jobs("eta", oldest=True)[0].data["options"])["routing_key"] == "late"
    hipq.celery.uninstall(app)


def test_bad_settings_are_refused(case: Case) -> None:
    with pytest.raises(Invalid, match="takes a Celery app, not 'tasks'"):
        hipq.celery.install("tasks")
    with pytest.raises(Invalid, match="further_than"):
        hipq.celery.install(case.app, "sqlite://", further_than=-1)
    with pytest.raises(Invalid, match="further_than"):
        hipq.celery.install(case.app, "sqlite://", further_than="15 minutes")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="instance's name"):
        hipq.celery.install(case.app, "sqlite://", name="My App")
    assert not case.app.steps["worker"]


def test_a_limit_beyond_the_visibility_timeout_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case("memory://", broker_transport_options={"visibility_timeout": 600})
    with kept_in(case, tmp_path), caplog.at_level(logging.WARNING, "hipq.celery"):
        case.add.apply_async()
        case.add.apply_async()
    assert caplog.text.count("give install() a smaller further_than") == 1


def test_a_header_that_is_not_json_is_refused_in_one_sentence(case: Case, kept: Hipq) -> None:
    with pytest.raises(Invalid, match="task add cannot be kept until its time: a header or option is not JSON"):
        case.add.apply_async(countdown=HOUR, headers={"bad": object()})
    assert not ids(kept)


def test_a_database_that_cannot_be_reached_is_said_when_a_task_is_sent(case: Case) -> None:
    kept = hipq.celery.install(case.app, f"postgresql://nobody@127.0.0.1:{free_port()}/none?connect_timeout=1")
    with pytest.raises(StoreUnavailable):
        case.add.apply_async(countdown=HOUR)
    case.add.apply_async(task_id="near", countdown=1)
    assert case.got(1).keys() == {"near"}
    assert kept.name == "celery"
    hipq.celery.uninstall(case.app)


def test_a_database_without_tables_is_said_too(case: Case) -> None:
    with fresh_database() as url:
        hipq.celery.install(case.app, url)
        with pytest.raises(SchemaError, match="hipq migrate"):
            case.add.apply_async(countdown=HOUR)
        hipq.celery.uninstall(case.app)


def test_published_tasks_are_forgotten_after_a_while(case: Case, tmp_path: Path) -> None:
    with kept_in(case, tmp_path, history=0) as kept:
        case.add.apply_async(task_id="far", countdown=HOUR)
        publish_all(kept)
        kept.queues[0].enqueue("forget")
        kept.run(until_empty=True)
        assert "far" not in {job.key for job in kept.jobs("eta")}
