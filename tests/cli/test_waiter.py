"""`hipq waiter`: each command's good path, its JSON, and what it says when something is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from hipq.cli.complete import WAITER_QUEUE
from hipq.signals import TOGETHER
from tests import processes
from tests.brokers.aws import CREDENTIALS, REGION, aws_endpoint
from tests.cli.conftest import HipqCommand, eventually
from tests.waiter.cloud import Cloud, message
from tests.waiter.consuming import counted, is_empty, put

POST = '''
"""A waiter with handlers: bodies that begin with `slow` wait for the file `go`."""

import os
import time
from pathlib import Path

from hipq.waiter import Message, Waiter

waiter = Waiter([{queue!r}, {other!r}], delay=0.2, table={table!r})
idle = Waiter([{queue!r}])
nothing = 5


@waiter.handle({queue!r})
def mail(message: Message) -> None:
    Path(f"began-{{message.body}}").touch()
    while message.body.startswith("slow") and not os.path.exists("go"):
        time.sleep(0.01)
    Path(f"ended-{{message.body}}").touch()
'''


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    given = {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": aws_endpoint()}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return Cloud(aws_endpoint())


@pytest.fixture
def queue(cloud: Cloud) -> str:
    return cloud.queue()


@pytest.fixture
def table(cloud: Cloud, queue: str) -> str:
    """The queue's own."""
    return cloud.waiter(queue).tables.create(queue)


@pytest.fixture
def post(folder: Path, cloud: Cloud, queue: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """post.py, whose waiter keeps all in one table; the name of that one."""
    shared = cloud.name()
    cloud.waiter(queue, table=shared).tables.create(queue)
    (folder / "post.py").write_text(POST.format(queue=queue, other=cloud.queue(fifo=True), table=shared))
    monkeypatch.delitem(sys.modules, "post", raising=False)
    return shared


@pytest.fixture
def no_aws(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """post.py, where nobody listens: for what must be said before anybody is asked."""
    given = {**CREDENTIALS, "AWS_DEFAULT_REGION": REGION, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (folder / "post.py").write_text(POST.format(queue="mailers", other="reports.fifo", table=None))
    monkeypatch.delitem(sys.modules, "post", raising=False)


def far(cloud: Cloud, queue: str, *bodies: str) -> list[str]:
    """Messages that wait in the queue's own table, a day apart; their ids."""
    waiter = cloud.waiter(queue)
    return [waiter.send(queue, body, delay=86_400 * (n + 1)).id for n, body in enumerate(bodies)]


# -- send ------------------------------------------------------------------------------------------------------------
def test_send_now(hipq: HipqCommand, cloud: Cloud, queue: str) -> None:
    ran = hipq("waiter", "send", queue, "hello", "--attribute", "source=console", "--attribute", "n:Number=3",
               "--attribute", "raw:Binary=AAEC", "--attribute", "empty.ish=a=b")  # fmt: skip
    assert (ran.status, ran.err) == (0, "")
    (found,) = cloud.received(queue)
    assert (found["MessageId"], found["Body"]) == (ran.out.strip(), "hello")
    attributes = {
        name: value.get("StringValue", value.get("BinaryValue")) for name, value in found["MessageAttributes"].items()
    }
    assert attributes == {"source": "console", "n": "3", "raw": b"\x00\x01\x02", "empty.ish": "a=b"}


def test_send_within_15_minutes_and_further(hipq: HipqCommand, cloud: Cloud, queue: str, table: str) -> None:
    assert hipq("waiter", "send", queue, "soon", "--delay", "10m", "--json").json["where"] == "sqs"
    assert cloud.delayed(queue) == 1
    for when in (("--delay", "30d"), ("--at", "2099-01-15T08:00:00+01:00")):
        ran = hipq("waiter", "send", queue, "far", *when, "--json")
        assert (ran.status, ran.json["where"], ran.json["queue"]) == (0, "dynamodb", queue)
    assert len(cloud.items(table)) == 2


def test_send_from_standard_input_and_to_a_fifo_queue(hipq: HipqCommand, cloud: Cloud) -> None:
    fifo = cloud.queue(fifo=True)
    ran = hipq("waiter", "send", fifo, "--body-file", "-", "--group", "g", "--dedup", "d", stdin="Zoë\n".encode())
    assert ran.status == 0, ran.err
    (found,) = cloud.received(fifo)
    assert (found["Body"], found["Attributes"]["MessageGroupId"]) == ("Zoë\n", "g")


def test_send_without_a_table_says_how_to_make_one(hipq: HipqCommand, queue: str) -> None:
    ran = hipq("waiter", "send", queue, "x", "--delay", "30d")
    assert (ran.status, ran.out) == (2, "")
    assert f"`hipq waiter create-table {queue}`" in ran.complaint


# -- list, cancel, reschedule ----------------------------------------------------------------------------------------
def test_list_is_by_time_and_has_pages(hipq: HipqCommand, cloud: Cloud, queue: str, table: str) -> None:
    assert "no messages found" in hipq("waiter", "list", queue).err
    ids = far(cloud, table, "one", "two", "three")
    lines = hipq("waiter", "list", queue).out.splitlines()
    assert lines[0].split() == ["id", "at", "body", "group", "error"]
    assert [line.split()[0] for line in lines[1:]] == ids
    first = hipq("waiter", "list", queue, "--limit", "2", "--json")
    assert [row["body"] for row in first.json] == ["one", "two"]
    (more,) = first.err.splitlines()
    assert more.startswith("there is more: hipq waiter list ")
    second = hipq(*more.removeprefix("there is more: hipq ").split())
    assert ([row["id"] for row in second.json], second.err) == (ids[2:], "")


def test_list_has_the_whole_of_a_message(hipq: HipqCommand, cloud: Cloud, table: str) -> None:
    cloud.waiter(table).send(table, "x\n[31m", {"raw": {"DataType": "Binary", "BinaryValue": b"\x00"}}, delay=86_400)
    (row,) = hipq("waiter", "list", table, "--json").json
    assert row["body"] == "x\n[31m"
    assert row["attributes"] == {"raw": {"DataType": "Binary", "BinaryValue": "AA=="}}
    assert (row["queue"], row["group"], row["error"], row["claimed_by"], row["failures"]) == (table, "", "", "", 0)
    assert "\\n[31m" in hipq("waiter", "list", table).out  # a body cannot make lines of its own


def test_cancel_asks_first(hipq: HipqCommand, cloud: Cloud, table: str) -> None:
    ids = far(cloud, table, "one", "two")
    ran = hipq("waiter", "cancel", table, ids[0])
    assert ran.status == 2
    assert "There is no terminal to ask on: say --yes" in ran.complaint
    assert len(cloud.items(table)) == 2
    ran = hipq("waiter", "cancel", table, ids[0], "--yes")
    assert (ran.status, ran.out.startswith(f"cancelled {ids[0]}, which was for 20")) == (0, True)
    again = hipq("waiter", "cancel", table, ids[0], "--yes")
    assert (again.status, again.out) == (1, "")
    assert "it was sent or cancelled already" in again.complaint
    ran = hipq("waiter", "cancel", table, ids[1], "--yes", "--json")
    assert (ran.json["id"], ran.json["body"], ran.json["maybe_sent"]) == (ids[1], "two", False)
    assert cloud.items(table) == []


def test_reschedule(hipq: HipqCommand, cloud: Cloud, table: str) -> None:
    (job_id,) = far(cloud, table, "one")
    ran = hipq("waiter", "reschedule", table, job_id, "--at", "2099-01-15T08:00:00+01:00")
    assert (ran.status, ran.out) == (0, f"{job_id} is for 2099-01-15 07:00:00Z now\n")
    ran = hipq("waiter", "reschedule", table, job_id, "--delay", "40d", "--json")
    assert (ran.json["id"], ran.json["at"] < "2099") == (job_id, True)
    gone = hipq("waiter", "reschedule", table, "nobody", "--delay", "1h")
    assert (gone.status, "never was there" in gone.complaint) == (1, True)


# -- tables ----------------------------------------------------------------------------------------------------------
def test_create_table_and_check(hipq: HipqCommand, cloud: Cloud, queue: str) -> None:
    ran = hipq("waiter", "check", queue)
    assert ran.status == 1
    assert f"`hipq waiter create-table {queue}` makes it" in ran.out
    ran = hipq("waiter", "create-table", queue)
    assert (ran.status, ran.out) == (0, f"table {queue} keeps what is for {queue}\n")
    assert hipq("waiter", "create-table", queue, "--json").json == {"queue": queue, "table": queue}
    ran = hipq("waiter", "check", queue)
    assert (ran.status, ran.out.split()) == (0, ["queue", "table", "problem", queue, queue, "none"])
    assert hipq("waiter", "check", queue, "--json").json == [{"queue": queue, "table": queue, "problems": []}]
    shared = cloud.name()
    assert hipq("waiter", "create-table", queue, "--table", shared, "--keys-only").status == 0
    index = cloud.dynamodb.describe_table(TableName=shared)["Table"]["LocalSecondaryIndexes"][0]
    assert index["Projection"]["ProjectionType"] == "KEYS_ONLY"


def test_check_says_what_is_wrong(hipq: HipqCommand, cloud: Cloud, queue: str) -> None:
    missing = cloud.name()
    cloud.dynamodb.create_table(
        TableName=queue, BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "N"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )  # fmt: skip
    ran = hipq("waiter", "check", queue, missing, "--json")
    assert ran.status == 1
    wrong, nowhere = ran.json
    assert len(wrong["problems"]) == 3
    assert "scheduler" in wrong["problems"][0]
    assert [problem.partition(":")[0] for problem in nowhere["problems"]] == [
        f"queue {missing}",
        f"there is no table {missing} in this account and region; `hipq waiter create-table {missing}` makes it",
    ]
    lines = hipq("waiter", "check", queue).out.splitlines()
    assert len(lines) == 1 + 3


# -- which waiter ----------------------------------------------------------------------------------------------------
def test_a_waiter_of_the_code_is_taken_with_its_table(hipq: HipqCommand, cloud: Cloud, queue: str, post: str) -> None:
    job_id = hipq("waiter", "send", "post:waiter", queue, "x", "--delay", "30d").out.strip()
    assert [one["job_id"]["S"] for one in cloud.items(post)] == [job_id]
    assert [row["id"] for row in hipq("waiter", "list", "post:waiter", queue, "--json").json] == [job_id]
    assert [row["id"] for row in hipq("waiter", "list", queue, "--table", post, "--json").json] == [job_id]
    assert [row["table"] for row in hipq("waiter", "check", "post:waiter", "--json").json] == [post, post]
    ran = hipq("waiter", "list", "post:waiter", queue, "--table", post)
    assert (ran.status, "post:waiter says itself what --table would" in ran.complaint) == (2, True)


def test_hipq_toml_says_which_waiter(
    hipq: HipqCommand, cloud: Cloud, queue: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    shared, settings = cloud.name(), folder / "hipq.toml"
    settings.write_text(
        f'[waiter]\nqueues = ["{queue}"]\ntable = "{shared}"\nregion = "{REGION}"\nendpoint_url = "{cloud.endpoint}"\n'
        'scheduler = "ours"\ndelay = "1m"\n'
    )
    assert hipq("waiter", "create-table", queue).out == f"table {shared} keeps what is for {queue}\n"
    assert hipq("waiter", "send", queue, "x", "--delay", "30d", "--json").json["where"] == "dynamodb"
    assert [one["scheduler"]["S"] for one in cloud.items(shared)] == ["ours"]
    assert hipq("waiter", "check", "--json").json == [{"queue": queue, "table": shared, "problems": []}]
    assert hipq("waiter", "list", queue, "--scheduler", "theirs", "--json").json == []
    assert hipq("waiter", "run", "--once").out == "sent 0 messages, 0 could not be sent\n"
    shown = {row["setting"]: row["value"] for row in hipq("config", "--json").json["settings"]}
    assert (shown["waiter.queues"], shown["waiter.delay"], shown["waiter.scheduler"]) == (queue, "1m", "ours")
    settings.unlink()
    assert "in which AWS region? Pass region= (--region)" in hipq("waiter", "list", queue).complaint


def test_queues_are_completed(folder: Path, post: str, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")  # which is not asked
    (folder / "hipq.toml").write_text('[waiter]\nqueues = ["of-the-file"]\n')

    def completed(app: str, incomplete: str) -> set[str]:
        context = click.Context(click.Command("list"))
        context.params = {"app": app}
        found = WAITER_QUEUE.shell_complete(context, click.Argument(["queue"]), incomplete)
        return {one.value for one in found}

    assert completed("", "") == {"of-the-file"}
    assert completed("post:waiter", "q-") >= {queue}
    assert completed("post:waiter", "of") == {"of-the-file"}
    assert completed("nowhere:x", "nothing") == set()
    assert post


# -- run -------------------------------------------------------------------------------------------------------------
def test_run_once(hipq: HipqCommand, cloud: Cloud, queue: str, table: str) -> None:
    cloud.fill(table, [message(queue, "due", -5), message(queue, "far", 86_400)])
    ran = hipq("waiter", "run", queue, "--once")
    assert (ran.status, ran.out) == (0, "sent 1 message, 0 could not be sent\n")
    assert cloud.bodies(queue) == {"due": 1}
    found = hipq("waiter", "run", queue, "--once", "--json").json
    assert (found["sent"], found["failed"], found["problems"]) == (0, 0, [])


def test_run_says_which_table_is_not_there(hipq: HipqCommand, queue: str, table: str) -> None:
    ran = hipq("waiter", "run", queue, "mailres", "--once")
    assert (ran.status, ran.out) == (0, "sent 0 messages, 0 could not be sent\n")
    assert "there is no table mailres" in ran.err
    assert table not in ran.err


def test_run_once_that_cannot_send_is_exit_1(hipq: HipqCommand, cloud: Cloud, table: str) -> None:
    gone = cloud.name()
    cloud.fill(table, [message(gone, "due", -5)])
    ran = hipq("waiter", "run", table, "--once", "--json")
    assert (ran.status, ran.json["failed"]) == (1, 1)
    assert f"queue {gone}: there is no such queue" in ran.json["problems"][0]
    ran = hipq("waiter", "run", table, "--once")
    assert (ran.status, ran.out) == (1, "sent 0 messages, 1 could not be sent\n")
    assert "there is no such queue" in ran.err


class Process:
    """`hipq waiter ...` in a process of its own, and what it logs."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / f"waiter-{len(list(folder.glob('waiter-*')))}.log"
        command = [sys.executable, "-m", "hipq.cli.main", "waiter", *arguments]
        with self._log.open("wb") as log:
            self.process = processes.Popen(command, cwd=folder, stdout=log, stderr=log, process_group=0)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        def said() -> bool:
            assert self.process.poll() is None or text in self.log, self.log
            return text in self.log

        eventually(said)

    def told(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(60)


@pytest.fixture
def process(folder: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(folder, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def test_run_until_it_is_told_to_stop(process: Callable[..., Process], cloud: Cloud, queue: str, table: str) -> None:
    cloud.fill(table, [message(queue, "due", -5)])
    running = process("run", queue, "--delay", "0.2")
    running.says(f"looking every 0.2 s at: {table}")
    eventually(lambda: counted(cloud, queue)[0] == 1)
    cloud.fill(table, [message(queue, "due", -5)])
    eventually(lambda: counted(cloud, queue)[0] == 2)
    running.told(signal.SIGTERM)
    assert running.ended() == 0, running.log
    assert cloud.items(table) == []


# -- work ------------------------------------------------------------------------------------------------------------
def test_work_handles_what_comes_and_what_waits(
    process: Callable[..., Process], cloud: Cloud, queue: str, post: str, folder: Path
) -> None:
    put(cloud, queue, "now")
    cloud.fill(post, [message(queue, "due", -5), message(queue, "far", 86_400)])
    running = process("work", "post:waiter", "--wait", "1")
    eventually(lambda: (folder / "ended-now").exists() and (folder / "ended-due").exists())
    eventually(lambda: is_empty(cloud, queue))
    running.told(signal.SIGINT)
    assert running.ended() == 0, running.log
    assert f"consuming {queue}" in running.log
    assert "consumer stopped: 2 handled" in running.log
    assert not (folder / "began-far").exists()


def test_work_told_once_finishes_and_told_twice_gives_back(
    process: Callable[..., Process], cloud: Cloud, queue: str, post: str, folder: Path
) -> None:
    put(cloud, queue, "slow-1")
    running = process("work", "post:waiter", "--wait", "1", "--no-poller", "--log-format", "json")
    eventually(lambda: (folder / "began-slow-1").exists())
    running.told(signal.SIGTERM)
    running.says("consumer stopping: 1 handlers finish")
    (folder / "go").touch()
    assert running.ended() == 0, running.log
    assert is_empty(cloud, queue)
    assert {json.loads(line)["level"] for line in running.log.splitlines()} == {"INFO"}
    (folder / "go").unlink()
    put(cloud, queue, "slow-2")
    running = process("work", "post:waiter", "--wait", "1", "--no-poller")
    eventually(lambda: (folder / "began-slow-2").exists())
    running.told(signal.SIGTERM)
    running.says("consumer stopping")
    time.sleep(TOGETHER * 2)  # else it is the same one
    running.told(signal.SIGTERM)
    assert running.ended() == 1, running.log
    assert counted(cloud, queue) == (1, 0)  # at once, though the queue hides for an hour
    assert post


# -- what is wrong ---------------------------------------------------------------------------------------------------
BAD_USAGE = {
    "no command": ((), "Missing command"),
    "no such command": (("lst",), "did you mean list?"),
    "send nothing": (("send", "mailers"), "give BODY or --body-file"),
    "send twice": (("send", "mailers", "x", "--body-file", "-"), "give BODY or --body-file"),
    "send at two times": (("send", "mailers", "x", "--delay", "1", "--at", "2099-01-01T00:00:00Z"), "not both"),
    "send at no time": (("send", "mailers", "x", "--at", "tomorrow"), "at must be a moment like"),
    "send at a naive time": (("send", "mailers", "x", "--at", "2099-01-01T00:00:00"), "no time zone"),
    "send after nonsense": (("send", "mailers", "x", "--delay", "soon"), "delay must be a number of seconds"),
    "send to no queue's name": (("send", "mail ers", "x"), "a queue's name has"),
    "send an empty body": (("send", "mailers", ""), "empty"),
    "send control characters": (("send", "mailers", "a\x00b"), "U+0000"),
    "send a lone surrogate": (("send", "mailers", "\udcff"), "U+DCFF"),
    "an attribute without a value": (("send", "mailers", "x", "--attribute", "name"), "NAME=VALUE"),
    "an attribute without a name": (("send", "mailers", "x", "--attribute", "=5"), "NAME=VALUE"),
    "an attribute twice": (("send", "mailers", "x", "--attribute", "a=1", "--attribute", "a=2"), "twice"),
    "an attribute that is no base64": (("send", "mailers", "x", "--attribute", "a:Binary=!"), "must be base64"),
    "an attribute of no type": (("send", "mailers", "x", "--attribute", "a:Date=1"), "must be String, Number"),
    "dedup for a standard queue": (("send", "mailers", "x", "--dedup", "d"), "only FIFO queues"),
    "no group for a FIFO queue": (("send", "reports.fifo", "x"), "need group=… (--group)"),
    "list of no queue": (("list",), "Missing argument 'QUEUE'"),
    "list of a page of nothing": (("list", "mailers", "--limit", "0"), "limit must be"),
    "list after nonsense": (("list", "mailers", "--after", "x"), "after must be"),
    "cancel nothing": (("cancel", "mailers"), "Missing argument 'ID'"),
    "reschedule to no time": (("reschedule", "mailers", "x"), "say when"),
    "reschedule to two times": (("reschedule", "mailers", "x", "--delay", "1", "--at", "2099-01-01T00Z"), "say when"),
    "run nothing": (("run",), "say which queues"),
    "run what is named twice": (("run", "post:waiter", "mailers"), "leave QUEUE out"),
    "run every now and never": (("run", "mailers", "--delay", "0"), "delay must be between"),
    "run with JSON and without an end": (("run", "mailers", "--json"), "--json is for what --once prints"),
    "check nothing": (("check",), "say which queues"),
    "create no table": (("create-table",), "Missing argument 'QUEUE'"),
    "a table with a bad name": (("create-table", "mailers", "--table", "a b"), "DynamoDB has no tables named"),
    "an endpoint that is none": (("list", "mailers", "--endpoint-url", "nowhere"), "nowhere"),
    "work on nothing": (("work",), "say where your Waiter is"),
    "work on a module": (("work", "post"), "'post' is too much; a Waiter is given as MODULE:APP, like shop:waiter"),
    "work on a module, with options": (("work", "-c", "2", "post"), "'post' is too much"),
    "work on no module": (("work", "nowhere:waiter"), "there is no module nowhere"),
    "work on what is no waiter": (("work", "post:nothing"), "post:nothing is a int, not a Waiter"),
    "work on a mistyped waiter": (("work", "post:waitr"), "did you mean waiter?"),
    "work on a hipq": (("work", "shop:app"), "shop:app is a Hipq, not a Waiter"),
    "work on a waiter without handlers": (("work", "post:idle"), "@idle.handle(QUEUE)"),
    "work on a queue without a handler": (("work", "post:waiter", "-q", "fly"), "has no handler for the queue 'fly'"),
    "work with no hands": (("work", "post:waiter", "-c", "0"), "concurrency must be"),
    "wait for a minute": (("work", "post:waiter", "--wait", "60"), "wait must be"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "sentence"), BAD_USAGE.values(), ids=BAD_USAGE)
@pytest.mark.usefixtures("no_aws")
def test_bad_usage_is_exit_2_and_one_sentence(hipq: HipqCommand, arguments: tuple[str, ...], sentence: str) -> None:
    ran = hipq("waiter", *arguments)
    assert ran.status == 2, ran.err
    assert ran.out == ""
    assert sentence in ran.complaint


@pytest.mark.parametrize(
    "arguments",
    [("send", "mailers", "x"), ("list", "mailers"), ("create-table", "mailers"), ("cancel", "mailers", "x", "--yes"),
     ("reschedule", "mailers", "x", "--delay", "1"), ("run", "mailers"), ("work", "post:waiter")],
)  # fmt: skip
@pytest.mark.usefixtures("no_aws")
def test_a_server_that_is_not_there_is_exit_1_and_one_sentence(hipq: HipqCommand, arguments: tuple[str, ...]) -> None:
    ran = hipq("waiter", *arguments)
    assert (ran.status, ran.out) == (1, "")
    assert "nobody listens at 127.0.0.1:1" in ran.complaint


def test_without_credentials_it_says_what_to_set(
    hipq: HipqCommand, queue: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(folder))
    ran = hipq("waiter", "send", queue, "x")
    assert ran.status == 1
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in ran.complaint


def test_without_boto3_it_says_what_to_install(folder: Path) -> None:
    code = "import sys; sys.modules['boto3'] = None; from hipq.cli.main import main; main()"
    command = [sys.executable, "-c", code, "waiter", "list", "mailers"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hipq: the waiter needs boto3: pip install 'hipq[waiter]'\n"


def test_other_commands_do_not_load_it(folder: Path) -> None:
    code = (
        "import sys, hipq.cli.main; print([name for name in sys.modules if name.startswith(('boto', 'hipq.waiter'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"
