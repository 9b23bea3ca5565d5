"""Bad usage: exit 2 and one sentence."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from hipq import Hipq
from tests.cli.conftest import HipqCommand
from tests.servers import OwnPostgres, fresh_database

BAD_USAGE = {
    "no command of a group": ("queue",),
    "no such command": ("fly",),
    "no such option": ("worker", "shop:app", "--fly"),
    "an option without its value": ("enqueue", "shop:app", "orders", "quick", "--key"),
    "too many arguments": ("queue", "list", "shop:app", "more"),
    "no application": ("worker",),
    "not an application": ("worker", "shop:nothing"),
    "no such name": ("worker", "shop:fly"),
    "no such module": ("worker", "ship:app"),
    "no such package": ("worker", "ship.shop:app"),
    "not a module": ("worker", "../shop:app"),
    "an import that raises": ("worker", "broken:app"),
    "an import that ends the program": ("worker", "leaves:app"),
    "an import that lacks another": ("worker", "needy:app"),
    "an application without queues": ("worker", "empty:app"),
    "a worker of no such queue": ("worker", "shop:app", "-q", "orders,fly"),
    "a worker of an empty name": ("worker", "shop:app", "-q", ""),
    "no hands": ("worker", "shop:app", "-c", "0"),
    "no processes": ("worker", "shop:app", "--processes", "0"),
    "too many hands": ("worker", "shop:app", "-c", "9" * 5000),
    "no such level": ("worker", "shop:app", "--log-level", "loud"),
    "several processes of no application": ("worker", "ship:app", "--processes", "3"),
    "several processes of no queue": ("worker", "shop:app", "-q", "fly", "--processes", "3"),
    "no such state": ("job", "list", "shop:app", "--state", "fine"),
    "no such queue": ("job", "list", "shop:app", "-q", "fly"),
    "prune in no such queue": ("prune", "shop:app", "--older-than", "1d", "-q", "fly"),
    "prune without an age": ("prune", "shop:app"),
    "prune of a negative age": ("prune", "shop:app", "--older-than", "-1d"),
    "prune of nonsense": ("prune", "shop:app", "--older-than", "old"),
    "a job id of letters": ("job", "show", "shop:app", "abc"),
    "a job id of 0": ("job", "show", "shop:app", "0"),
    "a job id of 2^63": ("job", "show", "shop:app", str(1 << 63)),
    "a job id of 5000 digits": ("job", "cancel", "shop:app", "1" * 5000),
    "a page of nothing": ("job", "list", "shop:app", "--limit", "0"),
    "a page after 2^63": ("job", "list", "shop:app", "--after", str(1 << 63)),
    "a key that is not text": ("job", "list", "shop:app", "--key", "\udcff"),
    "a type that is none": ("job", "list", "shop:app", "--type", "a|b"),
    "a reason with a newline": ("job", "cancel", "shop:app", "65537", "--reason", "a\nb"),
    "an application and a database": ("job", "list", "shop:app", "--db", "sqlite:///shop.db"),
    "not a database": ("queue", "list", "--db", "mongodb://x:s3cret@y"),
    "a database without a name": ("queue", "list", "--db", "sqlite:/shop.db"),
    "why of letters": ("job", "why", "shop:app", "abc"),
    "why of nothing": ("job", "why", "shop:app"),
    "pause no queue": ("queue", "pause", "shop:app"),
    "pause no such queue": ("queue", "pause", "shop:app", "fly"),
    "resume no such queue": ("queue", "resume", "shop:app", "fly"),
    "pause a lane and a type": ("queue", "pause", "shop:app", "orders", "--lane", "a", "--type", "b"),
    "resume a lane and a type": ("queue", "resume", "shop:app", "orders", "--lane", "a", "--type", "b"),
    "pause a type that is none": ("queue", "pause", "shop:app", "orders", "--type", "a|b"),
    "pause a lane with a newline": ("queue", "pause", "shop:app", "orders", "--lane", "a\nb"),
    "pause a lane of 64 KB": ("queue", "pause", "shop:app", "orders", "--lane", "a" * 65_536),
    "limit of no queue": ("queue", "limit", "shop:app"),
    "limit of no such queue": ("queue", "limit", "shop:app", "fly", "5"),
    "limit of letters": ("queue", "limit", "shop:app", "orders", "many"),
    "limit of too many decimals": ("queue", "limit", "shop:app", "orders", "1.0005"),
    "limit of 0": ("queue", "limit", "shop:app", "orders", "0"),
    "no limit and a limit": ("queue", "limit", "shop:app", "orders", "5", "--none"),
    "no limit and a rate": ("queue", "limit", "shop:app", "orders", "--none", "--rate", "5/1"),
    "no limit and that of the code": ("queue", "limit", "shop:app", "orders", "--none", "--default"),
    "pause a type that nobody knows": ("queue", "pause", "shop:app", "orders", "--type", "chrage"),
    "a job of a type that nobody knows": ("enqueue", "shop:app", "orders", "chrage"),
    "limit below 0": ("queue", "limit", "shop:app", "orders", "--", "-1"),
    "limit of 5000 digits": ("queue", "limit", "shop:app", "orders", "9" * 5000),
    "limit of a billion and one": ("queue", "limit", "shop:app", "orders", "1000000001"),
    "no units for each lane": ("queue", "limit", "shop:app", "orders", "--per-lane", "0"),
    "shares of more than all": ("queue", "limit", "shop:app", "orders", "10", "--share", "east=60,west=50"),
    "shares and others of more than all": (
        "queue",
        "limit",
        "shop:app",
        "orders",
        "10",
        "--share",
        "a=99",
        "--other",
        "2",
    ),
    "shares of no limit": ("queue", "limit", "shop:app", "orders", "--share", "east=60"),
    "shares of a limit of 0": ("queue", "limit", "shop:app", "orders", "0", "--share", "east=60"),
    "a share below one unit": ("queue", "limit", "shop:app", "orders", "1", "--share", "east=60"),
    "a share without a percentage": ("queue", "limit", "shop:app", "orders", "10", "--share", "east"),
    "a share of nothing": ("queue", "limit", "shop:app", "orders", "10", "--share", "east=0"),
    "a share of letters": ("queue", "limit", "shop:app", "orders", "10", "--share", "east=all"),
    "a share of 5000 digits": ("queue", "limit", "shop:app", "orders", "10", "--share", "east=" + "1" * 5000),
    "a lane with two shares": ("queue", "limit", "shop:app", "orders", "10", "--share", "east=1,east=2"),
    "shares in an empty text": ("queue", "limit", "shop:app", "orders", "10", "--share", ""),
    "a share for others only": ("queue", "limit", "shop:app", "orders", "10", "--other", "5"),
    "a rate without a time": ("queue", "limit", "shop:app", "orders", "--rate", "50"),
    "a rate of nothing": ("queue", "limit", "shop:app", "orders", "--rate", "0/1"),
    "a rate in no time": ("queue", "limit", "shop:app", "orders", "--rate", "5/0"),
    "a rate in letters": ("queue", "limit", "shop:app", "orders", "--rate", "5/soon"),
    "a rate of 5000 digits": ("queue", "limit", "shop:app", "orders", "--rate", "5" * 5000 + "/1"),
    "the same rate twice": ("queue", "limit", "shop:app", "orders", "--rate", "5/1", "--rate", "5/1s"),
    "limits and those of the code": ("queue", "limit", "shop:app", "orders", "5", "--default"),
    "a rate and that of the code": ("queue", "limit", "shop:app", "orders", "--rate", "5/1", "--default"),
    "an answer of nothing": ("answer", "shop:app"),
    "an answer to no key": ("answer", "shop:app", "orders", "charge"),
    "an answer to no such queue": ("answer", "shop:app", "fly", "charge", "k"),
    "an answer to a queue of another instance": ("answer", "shop:app", "farm.orders", "charge", "k"),
    "an answer from a missing file": ("answer", "shop:app", "orders", "charge", "k", "--data-file", "nowhere.json"),
    "an answer twice": ("answer", "shop:app", "orders", "charge", "k", "1", "--data-file", "-"),
    "an answer here and there": ("answer", "shop:app", "orders", "charge", "k", "--db", "sqlite:///shop.db"),
    "an answer nowhere": ("answer", "orders", "charge", "k"),
    "an answer to a database that is not there": ("answer", "--db", "sqlite:///typo.db", "orders", "charge", "k"),
    "answers of nothing": ("answers",),
    "answers of no such command": ("answers", "eat"),
    "answers of no such queue": ("answers", "list", "shop:app", "-q", "fly"),
    "answers of no such state": ("answers", "list", "shop:app", "--state", "fine"),
    "answers of a state of 64 KB": ("answers", "list", "shop:app", "--state", "a" * 65_536),
    "answers of a type that is none": ("answers", "list", "shop:app", "--type", "a|b"),
    "answers of a key that is not text": ("answers", "list", "shop:app", "--key", "\udcff"),
    "answers of an empty key": ("answers", "list", "shop:app", "--key", ""),
    "answers counted in no such queue": ("answers", "count", "shop:app", "-q", "fly"),
    "show no answer": ("answers", "show", "shop:app"),
    "rekey to nothing": ("answers", "rekey", "shop:app", "1"),
    "drop no answer": ("answers", "drop", "shop:app"),
    "drop by number and by state": ("answers", "drop", "shop:app", "1", "--state", "late"),
    "drop of no such state": ("answers", "drop", "shop:app", "--state", "fine", "--yes"),
    "drop of a nonsense age": ("answers", "drop", "shop:app", "--older-than", "old", "--yes"),
    "drop in no such queue": ("answers", "drop", "shop:app", "-q", "fly", "--yes"),
    "replay no answer": ("answers", "replay", "shop:app"),
    "a page of no queues": ("queue", "list", "shop:app", "--limit", "0"),
    "a page after too many queues": ("queue", "list", "shop:app", "--after", "65536"),
    "completion of no shell": ("completion",),
    "completion of no such shell": ("completion", "tcsh"),
    "config of something": ("config", "shop:app"),
    "migrate nothing": ("migrate",),
    "migrate an application and a database": ("migrate", "shop:app", "--db", "sqlite:///shop.db"),
    "migrate no database": ("migrate", "--db", "mongodb://x:s3cret@y"),
    "a missing file": ("enqueue", "shop:app", "orders", "quick", "--data-file", "nowhere.json"),
    "data twice": ("enqueue", "shop:app", "orders", "quick", "1", "--data-file", "-"),
}


@pytest.fixture(autouse=True)
def _modules(folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "leaves.py").write_text("raise SystemExit(7)\n")
    (folder / "needy.py").write_text("import something_that_is_not_installed\n")
    (folder / "empty.py").write_text("from hipq import Hipq\napp = Hipq('empty')\n")


@pytest.mark.parametrize("arguments", BAD_USAGE.values(), ids=BAD_USAGE)
def test_bad_usage_is_exit_2_and_one_sentence(hipq: HipqCommand, arguments: tuple[str, ...]) -> None:
    ran = hipq(*arguments)
    assert ran.status == 2
    assert ran.out == ""
    assert ran.complaint
    assert "s3cret" not in ran.err


def test_an_import_that_raises_says_where(hipq: HipqCommand, folder: Path) -> None:
    complaint = hipq("worker", "broken:app").complaint
    assert "ZeroDivisionError" in complaint
    assert f"{folder}/broken.py, line 1" in complaint


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("jobs",), "there is no command 'jobs'; did you mean job?"),
        (("wroker",), "did you mean worker?"),
        (("resume",), "did you mean cron resume or queue resume?"),
        (("answers", "lst"), "did you mean list?"),
        (("queue", "puase", "shop:app"), "did you mean pause?"),
        (("answers", "list", "shop:app", "--stat", "late"), "--state"),
        (("answers", "list", "shop:app", "--state", "buffred"), "'buffered'"),
        (("queue", "pause", "shop:app", "order"), "there is no queue 'order'; did you mean orders?"),
        (("answers", "list", "shop:app", "-q", "mals"), "did you mean mails?"),
        (("worker", "shop:app", "-q", "orders,mial"), "did you mean mails?"),
        (("worker", "shop:app", "-q", "orders,mial", "--processes", "2"), "did you mean mails?"),
        (("enqueue", "shop:app", "oders", "quick"), "did you mean orders?"),
        (("worker", "shop:ap"), "module shop has no ap; did you mean app?"),
        (("queue", "list", "--db", "sqlite:///typo.db"), "`hipq migrate --db sqlite:///typo.db` makes one"),
    ],
)
def test_a_typo_is_told_what_may_be_meant(hipq: HipqCommand, arguments: tuple[str, ...], meant: str) -> None:
    ran = hipq(*arguments)
    assert ran.status == 2
    assert meant in ran.complaint


def test_a_job_of_a_type_that_nobody_knows_is_refused_unless_it_is_forced(hipq: HipqCommand) -> None:
    """Another program may have the code: then --force says so, and once there is a job of it the type is known."""
    ran = hipq("enqueue", "shop:app", "orders", "chrage")
    assert ran.status == 2
    assert "queue orders has no job type 'chrage' (--force adds the job" in ran.complaint
    assert ran.complaint.endswith("; did you mean charge?")
    assert hipq("job", "list", "shop:app", "--json").json == []
    assert hipq("enqueue", "shop:app", "orders", "charge").status == 0
    assert hipq("enqueue", "shop:app", "orders", "elsewhere", "--force").status == 0
    assert hipq("enqueue", "shop:app", "orders", "elsewhere").status == 0


# -- PostgreSQL ------------------------------------------------------------------------------------------------------
def test_postgresql_without_its_driver(folder: Path) -> None:
    code = "import sys; sys.modules['psycopg'] = None; from hipq.cli.main import main; main()"
    command = [sys.executable, "-c", code, "queue", "list", "--db", "postgresql://ann:s3cret@db/shop"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == "hipq: PostgreSQL needs psycopg: pip install 'hipq[postgres]'"


def test_postgresql_that_cannot_be_used_says_what_to_do(hipq: HipqCommand) -> None:
    with fresh_database() as url:
        nowhere = f"{url}_not"
        for command in (("queue", "list"), ("answers", "count"), ("migrate",)):
            ran = hipq(*command, "--db", nowhere)
            assert ran.status == 1
            assert f"make it first: createdb {nowhere.rpartition('/')[2]}" in ran.complaint
        ran = hipq("queue", "list", "--db", url)
        assert ran.status == 1
        assert "run `hipq migrate" in ran.complaint
        stranger = urlunsplit(
            urlsplit(url)._replace(netloc=f"nobody_here:s3cret@{urlsplit(url).netloc.split('@')[-1]}")
        )
        ran = hipq("queue", "list", "--db", stranger)
        assert ran.status == 1
        assert "check the user" in ran.complaint
        assert "s3cret" not in ran.err
    refused = hipq("queue", "list", "--db", "postgresql://127.0.0.1:1/shop")
    assert "is the server running there?" in refused.complaint


def test_a_wrong_password_says_what_to_do(hipq: HipqCommand) -> None:
    server = OwnPostgres()
    try:
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text(f"host all ann 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        server.start()
        with psycopg.connect(server.url, autocommit=True) as conn:
            conn.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
        for password in (":s3cret", ""):
            ran = hipq("queue", "list", "--db", server.url.replace("postgres@", f"ann{password}@"))
            assert ran.status == 1
            assert "check the user and the password in the URL" in ran.complaint
            assert "s3cret" not in ran.err
    finally:
        server.close()


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("sqlite:///nofolder/x.db", "is its folder there, may you write to it?"),
        ("sqlite:///text.db", "check the path: another program made this file"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_to_do(hipq: HipqCommand, folder: Path, url: str, meant: str) -> None:
    (folder / "text.db").write_text("this is no database, but it is longer than the header of one" * 20)
    ran = hipq("migrate", "--db", url)
    assert ran.status == 1
    assert meant in ran.complaint


# -- where the output goes -------------------------------------------------------------------------------------------
OUTPUTS = ("job list shop:app", "queue list shop:app --json", "answers count shop:app", "config", "--help", "--version",
           "completion bash")  # fmt: skip


@pytest.mark.parametrize("command", OUTPUTS)
@pytest.mark.parametrize(
    ("where", "status"), [(">&-", 0), ("> /dev/full", 1), (">&- 2>&- <&-", 0), ("2> /dev/full", 0), ("2>&-", 0)]
)
def test_output_that_goes_nowhere_is_no_traceback(
    shop: Hipq, folder: Path, command: str, where: str, status: int
) -> None:
    shop.queues[0].enqueue("quick")
    shell = f"{sys.executable} -m hipq.cli.main {command} {where}"
    done = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    complaints = [line for line in done.stderr.splitlines() if line.startswith("hipq: ")]
    full = ["hipq: cannot write to standard output: No space left on device"]
    assert complaints == (full if where == "> /dev/full" else [])


def test_an_error_that_names_no_file_is_not_taken_for_one_of_the_output(
    hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **_options: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("hipq.cli.main.cli.main", refuses)
    ran = hipq("job", "list", "shop:app")
    assert (ran.status, ran.complaint) == (1, "hipq: a system call failed: No locks available")


def test_what_is_printed_never_goes_into_a_database(folder: Path) -> None:
    """With standard output closed, the next file that is opened would get its number."""
    python = f"{sys.executable} -m hipq.cli.main"
    shell = f"{python} enqueue shop:app orders quick >&- <&-; {python} job list shop:app --json"
    done = subprocess.run(["bash", "-c", shell], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert [job["type"] for job in json.loads(done.stdout)] == ["quick"]


def test_a_folder_that_was_removed_is_one_sentence(folder: Path) -> None:
    (folder / "gone").mkdir()
    shell = f"cd gone; rmdir ../gone; {sys.executable} -m hipq.cli.main job list shop:app"
    source = Path(__file__).parents[2] / "src"
    where = {**os.environ, "PYTHONPATH": str(source)}  # a relative one leads nowhere from there
    done = subprocess.run(["bash", "-c", shell], cwd=folder, env=where, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "hipq: the current folder is not there any more: go to another one\n"


def test_a_real_process_exits_so_too(folder: Path) -> None:
    """Through the entry point, with bytes no Unicode has in its arguments."""
    command = [os.path.join(os.path.dirname(sys.executable), "hipq"), "enqueue", "shop:app", "orders", "quick"]
    done = subprocess.run([*map(os.fsencode, command), b'"\xff"'], cwd=folder, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.splitlines()[-1] == b"hipq: data contains a lone surrogate, which is not Unicode text"


@pytest.mark.parametrize("command", ["job list shop:app --json", "demo"])
def test_a_reader_that_went_away_is_no_traceback(folder: Path, command: str) -> None:
    piped = f"{sys.executable} -m hipq.cli.main {command} | true"
    done = subprocess.run(["bash", "-c", piped], cwd=folder, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_module_for_an_application_is_told_what_to_write(hipq: HipqCommand, folder: Path) -> None:
    """Its source is read; it does not run."""
    (folder / "lab.py").write_text("import hipq\nlab: hipq.Hipq = hipq.Hipq('lab')\nraise SystemExit('it ran')\n")
    (folder / "two.py").write_text("from hipq import Hipq\na = Hipq('a')\nb = Hipq('b')\n")
    (folder / "none.py").write_text("app = dict()\n")
    (folder / "broken.py").write_text("app = (\n")
    for words, said in {
        ("worker", "shop"): "shop is a module: write shop:app",
        ("worker", "lab"): "lab is a module: write lab:lab",
        ("worker", "lab.py"): "lab.py is a module: write lab:lab",
        ("job", "list", "two"): "two is a module: write two:a or two:b",
        ("worker", "none"): "'none' is too much; an application is given as MODULE:APP, like shop:app",
        ("worker", "broken"): "'broken' is too much; an application is given as MODULE:APP, like shop:app",
        ("top", "nowhere"): "'nowhere' is too much; an application is given as MODULE:APP, like shop:app",
    }.items():
        refused = hipq(*words)
        assert (refused.status, said in refused.complaint) == (2, True), refused.complaint


@pytest.mark.parametrize("module", ["starlette", "uvicorn", "httptools"])
def test_a_daemon_without_what_it_needs_says_what_to_install(module: str) -> None:
    """Also where another program has brought some of them: FastAPI has two of these, and not the third."""
    code = f"import sys; sys.modules[{module!r}] = None\nfrom hipq.cli.main import run\nsys.exit(run(['serve']))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1), ran.stderr
    assert re.match(rf"hipq: hipq serve needs {module}[\w.]*: pip install 'hipq\[daemon\]'", ran.stderr)
