"""`hipq listen`, listening workers, and `hipq answers listeners`: with a real Redis, in processes of their own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from hipq import Hipq, transports
from tests import processes
from tests.brokers.redis import redis_url
from tests.cli.conftest import HipqCommand, Worker, eventually, shop_on

SHOP = """
from hipq import Hipq, Job, Wait

app = Hipq("shop")
orders = app.queue("orders")
mails = app.queue("mails")


@orders.job
def charge(job: Job):
    return Wait()


app.listen("{url}", to=charge, key="ref")
"""


@pytest.fixture
def stream(folder: Path) -> Iterator[str]:
    """The stream that shop:app listens to."""
    name = f"hipq-test-{uuid4().hex}"
    (folder / "shop.py").write_text(SHOP.format(url=f"{redis_url()}/{name}"))
    yield f"{redis_url()}/{name}"
    redis.Redis.from_url(redis_url()).delete(name)


@pytest.fixture
def listen(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, app: str = "shop:app") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "hipq", "listen", app, *arguments]
        with (folder / "listen.log").open("ab") as log:
            started.append(processes.Popen(command, cwd=folder, stdout=log, stderr=log))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def shop(folder: Path) -> Iterator[Hipq]:
    with shop_on(f"sqlite:///{folder}/shop.db") as app:
        yield app


def waiting(shop: Hipq, worker: Callable[..., Worker], *keys: str) -> list[int]:
    ids = shop.queues[0].enqueue_many("charge", [None] * len(keys), keys=list(keys))
    assert worker("--no-listen", "--until-empty").ended() == 0
    assert all(shop.job(job_id).phase == "waiting" for job_id in ids)
    return [*ids]


def log(folder: Path) -> str:
    return (folder / "listen.log").read_text()


def test_answers_are_kept_until_it_is_told_to_stop(
    folder: Path, shop: Hipq, stream: str, listen: Callable[..., subprocess.Popen[bytes]], worker: Callable[..., Worker]
) -> None:
    first, second = waiting(shop, worker, "a", "b")
    one = listen()
    transports.send(stream, {"ref": "a", "sum": 5})
    transports.send(stream, {"no": "key"})
    assert shop.result(first, timeout=60) == {"ref": "a", "sum": 5}
    eventually(lambda: "unreadable" in log(folder))
    one.send_signal(signal.SIGTERM)
    assert one.wait(60) == 0
    assert re.search(rf"listening to 1 stream: orders.charge {stream}", log(folder))
    for line in ("listener started", 'error="key: the message has no field ref"', "listener stopped"):
        assert line in log(folder)
    transports.send(stream, {"ref": "b"})  # while nobody listens
    listen()
    assert shop.result(second, timeout=60) == {"ref": "b"}


def test_several_share_what_comes_and_go_on_when_one_is_killed(
    folder: Path, shop: Hipq, stream: str, listen: Callable[..., subprocess.Popen[bytes]], worker: Callable[..., Worker]
) -> None:
    quick = f"{stream}?idle=1"  # what the killed one had comes again after a second, not after half a minute
    (folder / "shop.py").write_text(SHOP.format(url=quick))
    keys = [f"k{n}" for n in range(200)]
    ids = waiting(shop, worker, *keys)
    both = [listen(), listen()]
    for key in keys[:100]:
        transports.send(stream, {"ref": key})
    assert shop.result(ids[0], timeout=60)
    both[0].kill()
    for key in keys[100:]:
        transports.send(stream, {"ref": key})
    assert [shop.result(job_id, timeout=60)["ref"] for job_id in ids] == keys
    assert shop.answers.counts()["settled"].answers == 200


def test_a_worker_listens_unless_it_is_told_not_to(
    shop: Hipq, stream: str, worker: Callable[..., Worker], hipq: HipqCommand
) -> None:
    (job_id,) = waiting(shop, worker, "a")
    transports.send(stream, {"ref": "a"})
    assert worker("--until-empty", "--no-listen", "-q", "orders").ended() == 0
    assert shop.job(job_id).phase == "waiting"
    assert worker("--until-empty", "-q", "mails").log("listener started") == []
    one = worker("--processes", "2")
    assert shop.result(job_id, timeout=60) == {"ref": "a"}
    eventually(lambda: hipq("answers", "listeners", "shop:app", "--json").json[0]["listening"] == 2)
    one.send(signal.SIGTERM)
    assert one.ended() == 0


def test_what_came_is_shown(
    folder: Path, shop: Hipq, stream: str, listen: Callable[..., subprocess.Popen[bytes]],
    worker: Callable[..., Worker], hipq: HipqCommand,
) -> None:  # fmt: skip
    assert hipq("answers", "listeners", "shop:app", "--json").json == []
    (job_id,) = waiting(shop, worker, "a")
    for data in ({"ref": "a"}, {"ref": "a"}, {"ref": "early"}, {"none": 1}):
        transports.send(stream, data)
    one = listen()
    assert shop.result(job_id, timeout=60)
    eventually(lambda: len(shop.answers.list()) >= 3)
    eventually(lambda: hipq("answers", "listeners", "shop:app", "--json").json[0]["lag"] == 0)
    one.send_signal(signal.SIGTERM)
    one.wait(60)
    (row,) = hipq("answers", "listeners", "--db", f"sqlite:///{folder}/shop.db", "--json").json
    assert row == {
        "listener": "orders.charge", "url": stream, "listening": 0, "lag": None, "matched": 1, "duplicate": 1,
        "buffered": 1, "unreadable": 1, "conflict": 0, "late": 0, "error": "",
    }  # fmt: skip
    shown = hipq("answers", "listeners", "shop:app").out.splitlines()
    assert shown[0].split() == ["listener", "url", "listening", "lag", "matched", "buffered", "duplicate", "conflict",
                                "late", "unreadable"]  # fmt: skip
    assert shown[1].split()[:2] == ["orders.charge", stream]
    assert hipq("answers", "count", "shop:app").status == 0
    (bad,) = hipq("answers", "list", "shop:app", "--state", "unreadable", "--json").json
    assert bad["note"] == "key: the message has no field ref"


def test_a_server_that_is_not_there_is_said_once_and_waited_for(
    folder: Path, shop: Hipq, listen: Callable[..., subprocess.Popen[bytes]], hipq: HipqCommand
) -> None:
    (folder / "shop.py").write_text(SHOP.format(url="redis://me:s3cret@127.0.0.1:9/answers"))
    assert shop.queues
    one = listen()
    eventually(lambda: "listener down" in log(folder))
    (row,) = eventually(lambda: hipq("answers", "listeners", "shop:app", "--json").json)
    assert "127.0.0.1:9" in row["error"]
    assert "error" in hipq("answers", "listeners", "shop:app").out.splitlines()[0]
    assert one.poll() is None
    one.send_signal(signal.SIGINT)
    assert one.wait(60) == 0
    assert log(folder).count("listener down") == 1
    assert "refused" in log(folder)
    assert "s3cret" not in log(folder) + str(row)
    assert "Traceback" not in log(folder)


@pytest.mark.parametrize(
    ("code", "arguments", "sentence"),
    [
        ("", (), "shop:app listens to nothing: declare a stream with app.listen"),
        (
            "app.listen('webhook://bank', to=('orders', 'charge'), secret='BANK_SECRET')", (),
            "declare a stream with app.listen(...), and leave its webhooks to `hipq callbacks`",
        ),
        ("", ("-q", "odrers"), "shop:app declares no queue 'odrers'"),
        ("app.listen('pigeon://x', to=('orders', 'charge'))", (), "is no URL of a stream"),
        ("app.listen('redis://me:s3cret@h', to=('orders', 'charge'))", (), "names a server and nothing on it"),
        ("app.listen('redis://x', to=('nowhere', 'charge'))", (), "nowhere"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(
    folder: Path, hipq: HipqCommand, code: str, arguments: tuple[str, ...], sentence: str
) -> None:
    (folder / "shop.py").write_text(
        f"from hipq import Hipq\napp = Hipq('shop')\norders = app.queue('orders')\n{code}\n"
    )
    done = hipq("listen", "shop:app", *arguments)
    assert done.status == 2
    assert sentence in done.complaint
    assert "s3cret" not in done.complaint
