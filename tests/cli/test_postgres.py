"""The command line on PostgreSQL: migrate first, then the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import HipqCommand, Worker
from tests.servers import fresh_database


def test_from_migrate_to_prune(
    hipq: HipqCommand, worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_database() as url:
        monkeypatch.setenv("HIPQ_DATABASE_URL", url)
        early = hipq("enqueue", "shop:app", "orders", "quick")
        assert early.status == 1
        assert "run `hipq migrate" in early.complaint
        assert hipq("migrate", "--db", url, "--json").json["applied"]
        assert "is up to date" in hipq("migrate", "shop:app").out
        ids = [hipq("enqueue", "shop:app", "orders", "quick", str(n)).out.strip() for n in range(3)]
        delayed = hipq("enqueue", "shop:app", "orders", "quick", "--delay", "1h").out.strip()
        assert worker("--until-empty", "--processes", "2").ended() == 0
        assert [hipq("job", "show", "shop:app", job_id, "--json").json["code"] for job_id in ids] == ["ok"] * 3
        assert hipq("job", "retry", "--db", url, delayed, "--json").json["phase"] == "ready"
        assert hipq("job", "cancel", "--db", url, delayed, "--json").json["state"] == "final"
        (queue,) = [one for one in hipq("queue", "list", "--db", url, "--json").json if one["queue"] == "orders"]
        assert queue["table"] == "shop_orders"
        assert hipq("prune", "--db", url, "--older-than", "0", "--yes", "--json").json["deleted"] == 4
        assert hipq("job", "list", "--db", url, "--json").json == []


def test_a_server_that_is_not_there_is_one_sentence_without_its_password(hipq: HipqCommand) -> None:
    for command in (("queue", "list"), ("migrate",)):
        ran = hipq(*command, "--db", "postgresql://ann:s3cret@127.0.0.1:1/shop")
        assert ran.status == 1
        assert ran.complaint
        assert "database: postgresql://ann:…@127.0.0.1:1/shop" in ran.err
        assert "s3cret" not in ran.err
