"""hipq.toml: who finds it, what it says, what goes before it, and how it is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hipq import Hipq, Invalid
from hipq.config import read
from hipq.waiter.waiter import DELAY, SCHEDULER
from tests.cli.conftest import HipqCommand, Worker

WHOLE = """
app = "shop:app"
database = "sqlite:///data/shop.db"
callback_url = "https://shop.example/hipq"

[worker]
queues = ["orders", "mails"]
concurrency = 20
processes = 2
lease = "30s"
wait = "5m"
drain = "25s"
log_level = "debug"
log_format = "json"

[prune]
older_than = "30d"
keep = 1000

[waiter]
queues = ["mailers", "reports.fifo"]
delay = 60
table = "scheduled"
scheduler = "ours"
region = "eu-west-1"
endpoint_url = "http://127.0.0.1:5000"
"""


@pytest.fixture
def toml(folder: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (folder / "hipq.toml").write_text(text)
        return folder / "hipq.toml"

    return write


# -- finding it ------------------------------------------------------------------------------------------------------
def test_it_is_found_in_a_folder_above(
    toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toml(WHOLE)
    (folder / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(folder / "a" / "b")
    found = read()
    assert found.file == file
    assert found.settings.database == f"sqlite:///{folder}/data/shop.db"  # relative to the file
    assert found.settings.worker.queues == ["orders", "mails"]
    (folder / "a" / "hipq.toml").write_text('app = "nearer:app"')
    assert read().settings.app == "nearer:app"
    assert read().settings.database is None  # the nearest one alone


@pytest.mark.parametrize("end", ["a repository", "home", "a folder anybody may write to"])
def test_nothing_is_looked_for_above_the_end(
    toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    file = toml(WHOLE)
    below = folder / "project" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert read().file == file
    if end == "a repository":
        (folder / "project" / ".git").mkdir()
    elif end == "home":
        monkeypatch.setenv("HOME", str(folder / "project"))
    else:
        folder.chmod(0o777)
    assert read().file is None
    if end != "a folder anybody may write to":
        (folder / "project" / "hipq.toml").write_text('app = "own:app"')
        assert read().settings.app == "own:app"


def test_pyproject_has_it_too(folder: Path) -> None:
    project = folder / "pyproject.toml"
    project.write_text('[project]\nname = "hipq-user"\n[tool.other]\nx = 1\n')
    assert read().file is None
    project.write_text('[tool.hipq]\napp = "shop:app"\n[tool.hipq.worker]\nconcurrency = 3\n')
    assert (read().file, read().settings.app, read().settings.worker.concurrency) == (project, "shop:app", 3)
    (folder / "hipq.toml").write_text('app = "first:app"')
    assert read().settings.app == "first:app"
    (folder / "hipq.toml").unlink()
    project.write_text("[tool.hipq]\nfly = 1\n")
    with pytest.raises(Invalid, match=r"pyproject\.toml: fly is no setting"):
        read()
    project.write_text("somebody else's [broken file")
    assert read().file is None


# -- refusing it -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fly = 1", "fly is no setting; there are app, database, callback_url, worker, prune, waiter, serve"),
        ("databas = 'x'", "databas is no setting; did you mean database?"),
        ("[worker]\nconcurency = 1", "worker.concurency is no setting; did you mean concurrency?"),
        ("[prune]\nfly = 1", "prune.fly is no setting; there are older_than, keep"),
        ("app = 'shop'", 'app must be MODULE:APP, like "shop:app"'),
        ("app = 5", 'app must be MODULE:APP, like "shop:app"'),
        ("database = ''", 'database must be a URL, like "sqlite:///shop.db"'),
        (
            "callback_url = 'shop'",
            'callback_url must be where hipq callbacks is reached, like "https://shop.example/hipq"',
        ),
        ("worker = 3", "worker must be a table"),
        ("[worker]\nqueues = 'orders'", 'worker.queues must be a list of names, like ["orders", "mails"]'),
        ("[worker]\nqueues = ['a', 1]", 'worker.queues must be a list of names, like ["orders", "mails"]'),
        ("[worker]\nconcurrency = '3'", "worker.concurrency must be a whole number from 1 to 10000"),
        ("[worker]\nconcurrency = 0", "worker.concurrency must be a whole number from 1 to 10000"),
        ("[worker]\nconcurrency = 1.5", "worker.concurrency must be a whole number from 1 to 10000"),
        ("[worker]\nprocesses = true", "worker.processes must be a whole number from 1 to 1000"),
        ("[worker]\nlease = 'soon'", 'worker.lease must be seconds, or a duration like "30s"'),
        ("[worker]\nlog_level = 'loud'", 'worker.log_level must be "debug", "info", "warning" or "error"'),
        ("[prune]\nolder_than = -1", 'prune.older_than must be seconds, or a duration like "30d"'),
        ("[prune]\nkeep = 'all'", "prune.keep must be a whole number from 0"),
        ("[waiter]\ndealy = 30", "waiter.dealy is no setting; did you mean delay?"),
        (
            "[waiter]\nfly = 1",
            "waiter.fly is no setting; there are queues, delay, table, scheduler, region, endpoint_url",
        ),
        ("[waiter]\nqueues = 'mailers'", 'waiter.queues must be a list of names of SQS queues, like ["mailers", '),
        ("[waiter]\ndelay = 0", 'waiter.delay must be seconds, or a duration like "5m", and more than none'),
        ("[waiter]\ndelay = '0s'", 'waiter.delay must be seconds, or a duration like "5m", and more than none'),
        ("[waiter]\ndelay = 'soon'", 'waiter.delay must be seconds, or a duration like "5m", and more than none'),
        ("[waiter]\ntable = 'a b'", 'waiter.table must be the name of a DynamoDB table, like "scheduled"'),
        ("[waiter]\nscheduler = ''", 'waiter.scheduler must be the hash value of items, like "shoryuken-waiter"'),
        ("[waiter]\nregion = 'Ireland!'", 'waiter.region must be the name of one, like "eu-west-1"'),
        (
            "[waiter]\nendpoint_url = 'moto'",
            'waiter.endpoint_url must be the URL of a server, like "http://127.0.0.1:5000"',
        ),
    ],
)
def test_what_is_wrong_is_one_sentence_with_file_and_key(
    hipq: HipqCommand, toml: Callable[[str], Path], text: str, sentence: str
) -> None:
    file = toml(text)
    for command in (("config",), ("worker", "shop:app", "--until-empty"), ("job", "list", "shop:app")):
        ran = hipq(*command)
        assert (ran.status, ran.out) == (2, "")
        assert f"{file}: {sentence}" in ran.complaint


@pytest.mark.parametrize("text", [b"a = ", b"\xff", b"[" * 100_000])
def test_what_is_not_toml_is_one_sentence(hipq: HipqCommand, folder: Path, text: bytes) -> None:
    (folder / "hipq.toml").write_bytes(text)
    ran = hipq("config")
    assert ran.status == 2
    assert f"{folder}/hipq.toml is not TOML" in ran.complaint


# -- what goes before what -------------------------------------------------------------------------------------------
def test_the_library_takes_code_then_environment_then_file_then_its_name(
    toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Hipq("farm").url == "sqlite:///farm.db"
    toml('database = "sqlite:///of-file.db"')
    assert Hipq("farm").url == f"sqlite:///{folder}/of-file.db"
    toml('database = "sqlite:////var/of-file.db"')
    assert Hipq("farm").url == "sqlite:////var/of-file.db"
    toml('database = "postgresql://ann@db/shop"')
    assert Hipq("farm").url == "postgresql://ann@db/shop"
    monkeypatch.setenv("HIPQ_DATABASE_URL", "sqlite:///of-environment.db")
    assert Hipq("farm").url == "sqlite:///of-environment.db"
    assert Hipq("farm", "sqlite:///of-code.db").url == "sqlite:///of-code.db"
    toml("broken")
    assert Hipq("farm").url == "sqlite:///of-environment.db"  # who needs no file reads none


def test_importing_hipq_reads_no_file(folder: Path) -> None:
    (folder / "hipq.toml").write_text("broken")
    code = (
        "import sys, hipq; hipq.Hipq('a', 'sqlite://'); print('hipq.config' in sys.modules, 'tomllib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_the_application_is_of_the_command_line_then_environment_then_file(
    hipq: HipqCommand, toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        (folder / f"{name}.py").write_text(f"from hipq import Hipq\napp = Hipq({name!r})\napp.queue({name!r})\n")
        monkeypatch.delitem(sys.modules, name, raising=False)

    def used(*arguments: str) -> list[str]:
        return [row["queue"] for row in hipq("queue", "list", *arguments, "--json").json]

    toml('app = "one:app"')
    assert used() == ["one"]
    monkeypatch.setenv("HIPQ_APP", "two:app")
    assert used() == ["two"]
    assert used("three:app") == ["three"]
    assert used("--db", "sqlite:///one.db") == ["one"]


def test_an_application_of_the_file_is_found_from_below(
    hipq: HipqCommand, toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its module is beside the file, and so is its database."""
    toml('app = "shop:app"\ndatabase = "sqlite:///shop.db"')
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    job_id = hipq("enqueue", "orders", "quick").out.strip()
    assert hipq("job", "show", job_id, "--json").json["type"] == "quick"
    assert (folder / "shop.db").exists()
    assert list((folder / "below").iterdir()) == []


def test_without_an_application_the_database_of_environment_or_file_is_used(
    hipq: HipqCommand, toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hipq("enqueue", "shop:app", "orders", "quick")
    toml('database = "sqlite:///shop.db"')
    assert len(hipq("job", "list", "--json").json) == 1
    monkeypatch.setenv("HIPQ_DATABASE_URL", "sqlite:///other.db")
    assert hipq("job", "list").status == 2
    assert hipq("migrate", "--json").status == 0
    assert (folder / "other.db").exists()
    assert hipq("job", "list", "--json").json == []


def test_a_worker_and_its_processes_go_by_the_file(
    worker: Callable[..., Worker], hipq: HipqCommand, toml: Callable[[str], Path]
) -> None:
    """Two processes, and not two of each of them."""
    toml('[worker]\nprocesses = 2\nqueues = ["mails"]\nconcurrency = 3\nlog_level = "debug"\n')
    orders = hipq("enqueue", "shop:app", "orders", "quick").out.strip()
    mails = hipq("enqueue", "shop:app", "mails", "mail").out.strip()
    ran = worker("--until-empty")
    assert ran.ended() == 0, ran.text()
    assert len(ran.log("worker started")) == 2
    assert {line["job_type"] for line in ran.log("claimed")} == {"mail"}
    assert hipq("job", "show", "shop:app", mails, "--json").json["phase"] == "waiting"
    assert hipq("job", "show", "shop:app", orders, "--json").json["phase"] == "ready"
    alone = worker("--until-empty", "--processes", "1", "-q", "orders")
    assert alone.ended() == 0, alone.text()
    assert alone.log("worker started") == []
    assert hipq("job", "show", "shop:app", orders, "--json").json["code"] == "ok"


def test_help_shows_the_default_in_force(hipq: HipqCommand, toml: Callable[[str], Path]) -> None:
    assert "[default: 10]" in hipq("worker", "--help").out
    toml("[worker]\nconcurrency = 33\n")
    assert "[default: 33]" in hipq("worker", "--help").out


# -- hipq config -----------------------------------------------------------------------------------------------------
def test_config_says_what_is_in_force_and_from_where(
    hipq: HipqCommand, toml: Callable[[str], Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toml(WHOLE)
    monkeypatch.setenv("HIPQ_APP", "other:app")
    found = hipq("config", "--json").json
    assert found["file"] == str(file)
    rows = {row["setting"]: (row["value"], row["from"]) for row in found["settings"]}
    assert {name: row for name, row in rows.items() if not name.startswith("serve.")} == {
        "app": ("other:app", "$HIPQ_APP"),
        "database": (f"sqlite:///{folder}/data/shop.db", "file"),
        "callback_url": ("https://shop.example/hipq", "file"),
        "worker.queues": ("orders,mails", "file"),
        "worker.concurrency": (20, "file"),
        "worker.processes": (2, "file"),
        "worker.lease": ("30s", "file"),
        "worker.wait": ("5m", "file"),
        "worker.drain": ("25s", "file"),
        "worker.log_level": ("debug", "file"),
        "worker.log_format": ("json", "file"),
        "prune.older_than": ("30d", "file"),
        "prune.keep": (1000, "file"),
        "waiter.queues": ("mailers,reports.fifo", "file"),
        "waiter.delay": (60, "file"),
        "waiter.table": ("scheduled", "file"),
        "waiter.scheduler": ("ours", "file"),
        "waiter.region": ("eu-west-1", "file"),
        "waiter.endpoint_url": ("http://127.0.0.1:5000", "file"),
    }
    text = hipq("config").out.splitlines()
    assert text[0] == f"file: {file}"
    assert [line.split() for line in text if line.startswith("worker.concurrency")] == [
        ["worker.concurrency", "20", "file"]
    ]


def test_config_without_a_file_has_the_defaults(hipq: HipqCommand) -> None:
    found = hipq("config", "--json").json
    assert found["file"] is None
    values = {row["setting"]: row["value"] for row in found["settings"]}
    assert (values["app"], values["worker.concurrency"], values["worker.log_format"]) == (None, 10, "text")
    assert (values["waiter.delay"], values["waiter.scheduler"], values["waiter.table"]) == (DELAY, SCHEDULER, None)
    assert {row["from"] for row in found["settings"]} == {"default"}
    assert "file: none" in hipq("config").out


def test_config_never_prints_a_password(
    hipq: HipqCommand, toml: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    toml('database = "postgresql://ann:s3cret@db/shop"')
    for _ in range(2):
        for options in ((), ("--json",)):
            ran = hipq("config", *options)
            assert "s3cret" not in ran.out + ran.err
            assert "ann:" in json.dumps(ran.out)
        monkeypatch.setenv("HIPQ_DATABASE_URL", "postgresql://ann:s3cret@other/shop")
