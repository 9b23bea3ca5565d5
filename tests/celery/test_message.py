"""What the broker gets when a kept task is due is what it would have got at once: every header, property and byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.brokers.amqp import amqp_url
from tests.brokers.redis import redis_url
from tests.celery.messages import Case, kept_in, publish_all

IDS = {
    "plain", "priority", "pickle", "zlib", "headers", "queue", "routed", "new queue", "options", "links", "by name",
    "chain", "group 1", "group 2", "stamped",
}  # fmt: skip


def compare(broker: str, folder: Path, **settings: Any) -> None:
    case = Case(broker, **settings)
    try:
        _compare(case, folder)
    finally:
        case.clean()


def _compare(case: Case, folder: Path) -> None:
    case.send()
    at_once = case.got(len(IDS))
    assert at_once.keys() == IDS
    with kept_in(case, folder) as kept:
        case.send()
        assert kept.jobs.count("eta", state="initial") == len(IDS)
        publish_all(kept)
        when_due = case.got(len(IDS))
    for job_id in IDS:
        for group_of in (at_once[job_id], when_due[job_id]):
            if job_id.startswith("group"):
                group_of["headers"]["group"] = "a group"  # drawn anew for each
        for part in at_once[job_id]:
            assert when_due[job_id][part] == at_once[job_id][part], f"{part} of {job_id}"


@pytest.mark.parametrize("protocol", [2, 1])
def test_what_a_memory_broker_gets(tmp_path: Path, protocol: int) -> None:
    compare("memory://", tmp_path, task_protocol=protocol)


def test_what_redis_gets(tmp_path: Path) -> None:
    compare(redis_url(), tmp_path)


def test_what_rabbitmq_gets(tmp_path: Path) -> None:
    compare(amqp_url(), tmp_path)


def test_what_files_get(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    folders = {"data_folder_in": f"{tmp_path}/files", "data_folder_out": f"{tmp_path}/files"}
    control = {"control_folder": f"{tmp_path}/control"}
    compare("filesystem://", tmp_path, broker_transport_options=folders | control)
