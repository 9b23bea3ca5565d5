"""The client at a real daemon: both kinds do the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hipq.client import AsyncClient, Client
from hipq.errors import Conflict, DuplicateKey, Invalid, JobFailed, NotFound, Unauthorized
from tests.daemon.api_serving import Tenant, site

FAR = "2040-01-01T00:00:00Z"


class InTasks:
    """An AsyncClient with the manners of a Client."""

    def __init__(self, url: str, token: str, **options: Any) -> None:
        self._options = (url, token, options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        url, token, options = self._options

        async def do(*arguments: Any, **more: Any) -> Any:
            async with AsyncClient(url, token, **options) as client:
                return await getattr(client, name)(*arguments, **more)

        return lambda *arguments, **more: asyncio.run(do(*arguments, **more))


@pytest.fixture(scope="module")
def tenant() -> Tenant:
    return site().tenant()


@pytest.fixture(params=[Client, InTasks], scope="module")
def client(request: pytest.FixtureRequest, tenant: Tenant) -> Any:
    return request.param(tenant.daemon.address, tenant.token)


def test_jobs_are_added_and_their_results_come(client: Any) -> None:
    client.set_handler("echo", "python", "return payload")
    ids = client.add("echo", "text", b"\xff\x00", {"a": [1, None]}, 5)
    assert [client.result(job_id, timeout=60).data for job_id in ids] == [b"text", b"\xff\x00", b'{"a":[1,null]}', b"5"]
    found = client.result(ids[2])
    assert (found.code, found.exitcode, found.json()) == ("ok", 200, {"a": [1, None]})
    assert client.result(client.add("echo", "quick", once=False)[0], timeout=60).text == "quick"


def test_options_are_those_of_the_daemon(client: Any) -> None:
    at = datetime.now(UTC) + timedelta(hours=2)
    (job_id,) = client.add("mail", "x", at=at, priority=7, timeout=60, key=f"k{at.timestamp()}", then="log")
    job = client.job(job_id)
    assert (job["priority"], job["timeout"], job["payload"]) == (7, 60, "x")
    assert datetime.fromisoformat(job["at"]) == at
    with pytest.raises(DuplicateKey, match=job_id):
        client.add("mail", "x", key=f"k{at.timestamp()}")
    (delayed,) = client.add("mail", delay=3600)
    assert client.job(delayed)["phase"] == "scheduled"
    ids = client.add_many([{"type": "a", "payload": "1", "at": FAR}, {"type": "b", "payload": b"\xff", "at": FAR}])
    assert [client.job(one)["type"] for one in ids] == ["a", "b"]
    with pytest.raises(Invalid, match="no time zone"):
        client.add("mail", at=datetime.now())
    with pytest.raises(Invalid, match="priority"):
        client.add("mail", priority=1 << 31)
    with pytest.raises(Invalid, match="no job"):
        client.add("mail", typo=1)


def test_jobs_are_looked_at_cancelled_and_retried(client: Any) -> None:
    (job_id,) = client.add("looked", "x", at=FAR)
    assert job_id in [job["id"] for job in client.jobs(type="looked", state="initial")]
    assert client.why(job_id)["sentence"]
    assert client.cancel(job_id, "not needed")["state"] == "final"
    with pytest.raises(Conflict):
        client.retry(job_id)
    with pytest.raises(JobFailed, match="ended with cancelled"):
        client.result(job_id)
    with pytest.raises(NotFound, match="no job with this id"):
        client.job(12345)
    with pytest.raises(TimeoutError):
        client.result(client.add("looked", at=FAR)[0], timeout=0.1)
    assert isinstance(client.queues(), list)


def test_a_job_knows_the_jobs_that_its_handler_has_added(client: Any) -> None:
    client.set_handler("gather", "python", "return payload")
    client.set_handler("spawn", "python", "for n in range(3): print(f'J: gather|{n}')\nreturn payload")
    (parent,), (other,) = client.add("spawn", "x"), client.add("gather", "y")
    client.result(parent, timeout=60)
    found = [job["id"] for job in client.children(parent)]
    assert [client.job(one)["parent"] for one in found] == [parent] * 3
    assert other not in found
    assert [job["id"] for job in client.children(parent, limit=2)] == found[:2]
    assert [job["id"] for job in client.children(parent, after=found[1])] == found[2:]
    assert client.children(other) == []
    with pytest.raises(NotFound):
        client.children(12345)


def test_handlers_and_answers(client: Any) -> None:
    made = client.set_handler("handled", "node", "return 1", eid="e", beforeEach="let x = 1")
    assert client.get_handler("handled") == made
    assert (made["lang"], made["eid"], made["beforeEach"]) == ("node", "e", "let x = 1")
    assert "handled" in [one["type"] for one in client.handlers()]
    client.delete_handler("handled")
    with pytest.raises(NotFound):
        client.get_handler("handled")
    with pytest.raises(Invalid, match="language"):
        client.set_handler("handled", "cobol", "x")
    key = f"order/{made['id']} é"
    assert client.answer("charge", key, {"paid": True}, answer_id="m1") == "buffered"
    assert client.answer("charge", key, {"paid": True}, answer_id="m1") == "duplicate"


def test_events_come_while_things_happen(tenant: Tenant) -> None:
    with Client(tenant.daemon.address, tenant.token) as client:
        client.set_handler("watched", "python", "return payload")

        async def watch() -> list[str]:
            found = []
            async with AsyncClient(tenant.daemon.address, tenant.token) as watching:
                events = watching.events()
                coming = asyncio.ensure_future(anext(events))
                while not coming.done():  # the first to be heard may come before it listens
                    await asyncio.to_thread(client.add, "watched", "x")
                    await asyncio.wait([coming], timeout=0.5)
                found.append(coming.result()["event"])
                while found[-1] != "ok":  # which may have been the first: then there is no other to wait for
                    found.append((await anext(events))["event"])
            return found

        assert asyncio.run(watch())[-1] == "ok"


def test_a_bad_token_and_a_foreign_tenant_are_told(tenant: Tenant) -> None:
    with Client(tenant.daemon.address, "hipq_nobody") as client, pytest.raises(Unauthorized):
        client.add("mail", "x")
    other = site().tenant()
    with Client(tenant.daemon.address, tenant.token, tenant=other.name) as client, pytest.raises(NotFound):
        client.add("mail", "x")
    with Client(tenant.daemon.address, site().admin().token, tenant=tenant.name) as client:
        assert client.add("mail", "x", at=FAR)


def test_it_waits_for_a_daemon_that_is_full_for_a_moment() -> None:
    tenant = site().tenant(rate=2)
    with Client(tenant.daemon.address, tenant.token) as client:
        ids = [client.add("mail", "x", at=FAR)[0] for _ in range(4)]
    assert len(set(ids)) == 4


def test_many_jobs_are_changed_at_once(client: Any) -> None:
    client.set_handler("many", "python", "print('said')\nreturn payload")
    ids = client.add("many", "1", "2", "3", at=FAR, once=True)
    assert client.count_all("cancel", type="many", state="initial") == 3
    with pytest.raises(Conflict, match="nothing was changed"):
        client.cancel_all(2, type="many", state="initial")
    assert client.retry_all(3, type="many", state="initial") == 3
    assert [client.result(one, timeout=60).text for one in ids] == ["1", "2", "3"]
    again = client.requeue(ids[0])
    assert client.result(again, timeout=60).text == "1"
    with pytest.raises(Invalid, match="since has no time zone"):
        client.cancel_all(9, since=datetime.now())
    left = client.add("many", "4", "5", at=FAR)
    assert client.cancel_all(9, type="many", since=datetime(2020, 1, 1, tzinfo=UTC), reason="late") == len(left)


def test_cron_schedules(client: Any) -> None:
    made = client.add_cron("mail", "0 6 * * *", tz="Europe/Rome", data={"a": 1}, overlap=True)
    assert [made] == client.crons()
    assert client.change_cron("mail", paused=True)["paused"] is True
    assert client.job(client.run_cron("mail"))["payload"] == '{"a":1}'
    client.remove_cron("mail")
    with pytest.raises(NotFound, match="no such schedule"):
        client.change_cron("mail", paused=False)


@pytest.mark.parametrize("kind", [Client, InTasks])
def test_operators_do_tenants_and_tokens(kind: Any, tenant: Tenant) -> None:
    boss = kind(tenant.daemon.address, site().admin().token)
    assert boss.whoami()["tenant"] is None
    name = f"of_{kind.__name__}"
    assert boss.add_tenant(name, rate=5)["rate"] == 5
    assert boss.change_tenant(name, weight=3)["weight"] == 3
    assert name in [one["tenant"] for one in boss.tenants()]
    made = boss.create_token("read", tenant=name, name="board", expires=datetime(2090, 1, 1, tzinfo=UTC))
    reader = kind(tenant.daemon.address, made["token"])
    with pytest.raises(Unauthorized, match="this takes a token with the role post"):
        reader.add("mail", "x", once=False)
    rotated = boss.rotate_token(made["id"], overlap=0)
    assert [one["id"] for one in boss.tokens(name)] == [made["id"], rotated["id"]]
    boss.revoke_token(rotated["id"])
    boss.remove_tenant(name)
    assert [one["action"] for one in boss.audit(limit=2)] == ["tenants (delete)", "tokens (delete)"]
    of_nobody = kind(tenant.daemon.address, site().admin().token, tenant="nobody")
    with pytest.raises(NotFound):
        of_nobody.jobs()


def test_what_a_handler_prints_is_followed(tenant: Tenant) -> None:
    with Client(tenant.daemon.address, tenant.token) as client:
        client.set_handler("prints", "python", "print('hello')\nreturn payload")
        (job_id,) = client.add("prints", "x")
        *told, last = client.output(job_id)
        assert last == {"event": "ended", "state": "final", "code": "ok"}
        assert "".join(one["text"] for one in told) == "hello\n"
