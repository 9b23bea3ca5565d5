"""`hipq demo`: it adds up; if it did not it would say so; and nothing is left behind however it ends."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Job
from hipq.benchmark.interruption import Interruption
from hipq.demo import shop, summary
from hipq.demo.afterwards import suggestions
from hipq.demo.exchange import Reception
from hipq.demo.files import FILE, chosen_file
from hipq.demo.news import News
from hipq.demo.run import Run
from hipq.demo.summary import DemoFacts, checked
from hipq.engine.launch import Launcher
from hipq.errors import Invalid
from hipq.events import Events
from hipq.executors.execution import Execution
from hipq.job.fault import Fault
from hipq.limits.limit import Limit, limit
from tests import processes
from tests.cli.conftest import HipqCommand, Ran, alive, eventually
from tests.dashboard.serving import logged_in

COMMAND = [sys.executable, "-m", "hipq.cli.main", "demo"]


@pytest.fixture(autouse=True)
def _temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this test alone, and on the disk it has anyway."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> DemoFacts:
    """What a real run has counted."""
    run = Run(tmp_path_factory.mktemp("demo") / FILE, 3)
    with Interruption() as interruption:
        found = run.play(lambda _: nullcontext(), interruption)
    run.shop.app.close()
    return found


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return processes.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, **options,
    )  # fmt: skip


def bank_of(pid: int) -> int:
    """The process of the bank, once it is there."""

    def found() -> int:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if b"demo/bank.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
        return 0

    return int(eventually(found))


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if words in line:
            return
    pytest.fail(f"it never said {words!r}")


# -- it adds up ------------------------------------------------------------------------------------------------------
def test_every_kind_of_answer_and_of_ending_is_there_and_all_of_it_adds_up(hipq: HipqCommand, folder: Path) -> None:
    ran = hipq("demo", "--seconds", "6", "--json", "--keep", "here")
    report = ran.json
    assert ran.status == 0
    assert report["adds_up"] is True
    assert {check["about"] for check in report["checks"]} == {
        "jobs", "orders", "receipts", "requests", "answers", "limit", "priority", "critical", "window", "failed",
        "cancelled", "crashed",
    }  # fmt: skip
    assert set(report["answers"]) == {"matched", "buffered", "duplicate", "conflict", "late"}
    assert set(report["jobs"]) == {"ok", "failed", "error", "cancelled", "scheduled"}
    assert sum(report["jobs"].values()) > 400
    bank = report["bank"]
    assert min(bank[name] for name in ("refused", "never", "called off", "copies")) > 0
    assert report["limits"] == {"all": 20, "north": 10, "south": 6, "islands": 4}
    assert bank["most"].keys() == report["limits"].keys()
    assert report["database"] == f"sqlite:///{folder}/here/demo.db"
    app = Hipq("demo", f"sqlite:///{folder}/here/demo.db")  # and it is what the database says
    queues = [app.queue(name) for name in ("payments", "mails", "office")]
    assert sum(len(app.jobs(queue.name, limit=1000)) for queue in queues) == sum(report["jobs"].values())
    app.close()


def test_what_it_suggests_can_be_pasted(folder: Path) -> None:
    place = str(folder / "a folder with spaces, ü & $HOME")
    done = processes.run([*COMMAND, "--seconds", "4", "--keep", place], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = re.findall(r"^  (?!#)(.* --.*)$", done.stdout.partition("What to try next")[2], re.MULTILINE)
    assert [re.findall(r"\b(dashboard|show|why|answers|bench)\b", command)[0] for command in commands] == [
        "dashboard", "show", "why", "answers", "bench",
    ]  # fmt: skip
    shown = f"exec timeout --preserve-status -s INT 60 {commands[0]} --port 0"
    with processes.Popen(["bash", "-c", shown], stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout
        url = process.stdout.readline().removeprefix("dashboard: ").strip()
        assert 'href="/jobs"' in logged_in(url)
        process.terminate()
    said = []
    for command in (*commands[1:4], f"{commands[4]} --seconds 1"):
        ran = processes.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, timeout=60)
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        said.append(ran.stdout)
    assert "cancelling" in said[0]
    assert "it is scheduled for" in said[1]
    assert re.findall(r" late ", said[2])
    assert "pick-up" in said[3]


def test_what_the_dashboard_needs_is_said_where_it_is_missing(
    facts: DemoFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pip install" not in suggestions(facts, "sqlite:///demo.db")[0].why
    monkeypatch.setattr("hipq.demo.afterwards.find_spec", lambda name: None if name == "jinja2" else object())
    assert "pip install 'hipq[dashboard]' first" in suggestions(facts, "sqlite:///demo.db")[0].why


def test_without_a_terminal_it_tells_in_lines_that_are_not_too_many(folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"FORCE_COLOR": "1"}
    done = processes.run([*COMMAND, "--seconds", "5"], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    story, _, rest = done.stdout.partition("Does it add up?")
    assert 15 < len(story.splitlines()) < 100  # of 250 orders; some tell how far it is, every now and then
    for words in ("window has opened", "killed its process", "in time", "cancelled", "the same answer again",
                  "before the bank's own reply", "after its end", "of 20; ready", "given up after 3"):  # fmt: skip
        assert words in story
    assert "it adds up." in rest
    assert "NO" not in rest
    assert max(len(line) for line in done.stdout.splitlines() if "demo.db" not in line) < 130
    (line,) = done.stderr.splitlines()
    assert line.startswith("database: sqlite:///")


# -- on a terminal ---------------------------------------------------------------------------------------------------
def start_on_terminal(folder: Path, columns: int, lines: int, *arguments: str) -> tuple[int, int]:
    """Its process, and the other end of its terminal."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        os.execve(COMMAND[0], [*COMMAND, *arguments], kept | {"TERM": "xterm-256color"})
    return pid, master


def on_terminal(
    folder: Path, columns: int, lines: int, *arguments: str, then: Callable[[int], None] | None = None
) -> tuple[int, str]:
    """Its exit status and all it wrote; `then` is called with its pid once it has drawn something."""
    pid, master = start_on_terminal(folder, columns, lines, *arguments)
    written = b""
    try:
        while True:
            try:
                some = os.read(master, 65_536)
            except OSError:
                break
            written += some
            if then and b"payments" in written:
                then(pid)
                then = None
    finally:
        os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written.decode()


def drawn(written: str) -> list[str]:
    """The lines of everything that was drawn, without what moves the cursor and colours it."""
    return [line.rstrip("\r") for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written).split("\n")]


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (34, 9)])
def test_on_a_terminal_it_draws_a_picture_that_fits(folder: Path, columns: int, lines: int) -> None:
    status, written = on_terminal(folder, columns, lines, "--seconds", "3", "--keep", ".")
    assert status == 0, written
    picture = drawn(written.partition("Does it add up?")[0])
    assert any(re.search(r"payments +[█▏▎▍▌▋▊▉░]+ +20 of 20", line) for line in picture)
    events = [
        line for line in picture if re.match(r" *\d+\.\d s +order-\d+ +\w", line)
    ]  # which ones, is a matter of luck
    assert bool(events) == (columns == 80)
    frames = [line.rpartition("\r")[2] for line in picture if not line.startswith("database")]
    assert max(map(len, frames)) <= columns
    moves = [int(count) for count in re.findall(r"((?:\x1b\[2K\x1b\[1A)+)", written) for count in [len(count) // 8]]
    assert max(moves) < lines  # what is higher could not be drawn over
    assert "it adds up." in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor is back


def test_plain_has_no_control_codes_on_a_terminal_either(folder: Path) -> None:
    status, written = on_terminal(folder, 80, 24, "--seconds", "3", "--plain")
    assert status == 0
    assert "\x1b" not in written
    assert "it adds up." in written


def test_ctrl_c_leaves_the_terminal_as_it_was(folder: Path) -> None:
    status, written = on_terminal(folder, 80, 24, then=lambda pid: os.kill(pid, signal.SIGINT))
    assert status == 130
    assert "Traceback" not in written
    assert written.endswith("hipq: interrupted: this is what has been so far\r\n")
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1


def test_a_terminal_that_is_closed_ends_it(folder: Path) -> None:
    pid, master = start_on_terminal(folder, 80, 24)
    bank, written = bank_of(pid), b""
    while b"payments" not in written:
        written += os.read(master, 65_536)
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGHUP
    assert not alive(bank)


# -- a demo that cannot fail proves nothing --------------------------------------------------------------------------
def failed(ran: Ran) -> set[str]:
    """What a run that does not add up complains about."""
    assert ran.status == 1, ran.out
    assert "IT DOES NOT ADD UP" in ran.out
    complaint = re.fullmatch(r"hipq: it does not add up: look at (.*), and tell us", ran.complaint)
    assert complaint
    return set(complaint[1].split(", "))


def test_an_answer_that_is_acknowledged_but_not_kept_is_found_out(
    hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, swallowed = Reception.take, list[str]()

    def forgetful(self: Reception, answer: dict[str, Any]) -> str:
        if answer["key"] == "order-017" and not swallowed:
            swallowed.append(answer["key"])
            return "matched"
        return take(self, answer)

    monkeypatch.setattr(Reception, "take", forgetful)
    assert failed(hipq("demo", "--seconds", "3")) == {"answers"}
    assert swallowed


def test_a_limit_that_is_not_held_is_found_out(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(units: int) -> Limit:
        return limit(units + 10)

    monkeypatch.setattr(shop, "limit", generous)
    assert failed(hipq("demo", "--seconds", "3")) == {"limit"}


def test_a_receipt_that_is_never_added_is_missed(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Launcher._add

    def forgetful(self: Launcher, running: Execution, job_type: Any, data: Any, options: dict[str, Any]) -> None:
        if options["key"] != "order-000":
            add(self, running, job_type, data, options)

    monkeypatch.setattr(Launcher, "_add", forgetful)
    assert failed(hipq("demo", "--seconds", "3")) == {"receipts"}


def test_a_job_that_is_lost_is_missed(hipq: HipqCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row goes from the database; nothing that hipq told of it says so."""
    gather = summary.gathered

    def losing(run: Run, *others: Any) -> DemoFacts:
        lost = run.shop.app.jobs("mails", oldest=True, limit=7)[-1].id
        with sqlite3.connect(run.shop.app.url.removeprefix("sqlite:///")) as connection:
            connection.execute("DELETE FROM demo_mails_final WHERE id = ?", (lost,))
        return gather(run, *others)

    monkeypatch.setattr("hipq.demo.run.gathered", losing)
    assert failed(hipq("demo", "--seconds", "3")) == {"jobs", "receipts"}


def more(counts: Any, name: str, by: int = 1) -> dict[str, int]:
    return dict(counts) | {name: counts.get(name, 0) + by}


def but(facts: DemoFacts, job_type: str) -> DemoFacts:
    """Without one of its jobs of this type."""
    lost = facts.of_type(job_type)[0].id
    return facts._replace(jobs=[job for job in facts.jobs if job.id != lost])


def changed(facts: DemoFacts, job_id: int, **columns: Any) -> DemoFacts:
    from msgspec.structs import replace

    def one(job: Job[Any]) -> Job[Any]:
        return Job(replace(job._carried, **columns)) if job.id == job_id else job

    return facts._replace(jobs=[one(job) for job in facts.jobs])


Spoil = Callable[[DemoFacts], DemoFacts]
SPOILT: list[tuple[str, Spoil]] = [
    ("jobs", lambda facts: facts._replace(added=facts.added + 1)),
    ("jobs", lambda facts: facts._replace(events=facts.events + facts.events)),
    ("jobs", lambda facts: changed(facts, facts.tomorrow, attempt=1)),
    ("jobs", lambda facts: changed(facts, facts.of_type("freeze")[0].id, state="running")),
    ("orders", lambda facts: but(facts, "charge")),
    ("orders", lambda facts: changed(facts, facts.of_type("charge")[0].id, code="unheard of")),
    ("receipts", lambda facts: but(facts, "receipt")),
    ("receipts", lambda facts: changed(facts, facts.of_type("receipt")[0].id, job_key="order-999")),
    ("requests", lambda facts: facts._replace(bank=more(facts.bank, "requests"))),
    ("requests", lambda facts: facts._replace(bank=more(facts.bank, "never"))),
    ("requests", lambda facts: changed(facts, facts.of_type("charge")[0].id, attempt=9)),
    ("answers", lambda facts: facts._replace(bank=more(facts.bank, "sent"))),
    ("answers", lambda facts: facts._replace(bank=more(facts.bank, "copies", -1))),
    ("answers", lambda facts: facts._replace(words=more(facts.words, "late"))),
    ("answers", lambda facts: facts._replace(words=more(more(facts.words, "late"), "matched", -1))),
    ("answers", lambda facts: facts._replace(inbox=more(facts.inbox, "settled"))),
    ("answers", lambda facts: facts._replace(inbox=more(more(facts.inbox, "settled", -1), "buffered"))),
    ("limit", lambda facts: facts._replace(bank=dict(facts.bank) | {"most": facts.bank["most"] | {"all": 21}})),
    ("limit", lambda facts: facts._replace(bank=dict(facts.bank) | {"most": facts.bank["most"] | {"north": 11}})),
    ("limit", lambda facts: facts._replace(left=1)),
    ("priority", lambda facts: facts._replace(rush=facts.first, first=facts.rush)),
    ("critical", lambda facts: changed(facts, facts.of_type("freeze")[0].id, code="failed")),
    ("window", lambda facts: facts._replace(opens=facts.opens.replace(year=2999))),
    ("window", lambda facts: changed(facts, facts.of_type("report")[0].id, history="[]")),
    ("failed", lambda facts: but(facts, "audit")),
    ("cancelled", lambda facts: changed(facts, facts.cancelled, attempt=1)),
    ("crashed", lambda facts: changed(facts, facts.of_type("reconcile")[0].id, failures=0)),
    ("crashed", lambda facts: facts._replace(events=type(facts.events)({"added": facts.events["added"]}))),
]


def test_whatever_is_miscounted_is_found_out(facts: DemoFacts) -> None:
    """In one test: each process that has one of them would have to play it all first."""
    assert all(check.holds for check in checked(facts))
    for number, (about, spoil) in enumerate(SPOILT):
        assert about in {check.about for check in checked(spoil(facts)) if not check.holds}, number


def test_each_reason_is_news_of_its_own(facts: DemoFacts) -> None:
    """Lines tell each kind of news once: whichever reason comes first, the others are told too."""
    from msgspec.structs import replace

    events, row = Events(), facts.of_type("charge")[0]._carried
    news = News(events)
    for name in ("again", "failed"):
        for reason in ("the bank said 500", "our computer is down", "the bank said 500"):
            events.emit(name, 0, "payments", replace(row, error=Fault("error", reason).dump()))
    assert len({item.kind for item in news.latest}) == 4


# -- however it ends -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_has_been_so_far(folder: Path, number: int) -> None:
    process = start("--seconds", "60", cwd=folder)
    try:
        bank = bank_of(process.pid)
        read_until(process, "the bank said 500")
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert re.search(r"^  jobs      .*scheduled", out, re.MULTILINE)  # whether some wait just then is a matter of luck
    assert "add up" not in out
    assert err.splitlines()[-1] == "hipq: interrupted: this is what has been so far"
    assert "Traceback" not in err
    assert not alive(bank)


def test_the_bank_does_not_outlive_a_demo_that_was_killed(folder: Path) -> None:
    process = start("--seconds", "60", cwd=folder)
    bank = bank_of(process.pid)
    read_until(process, "audit")
    assert alive(bank)
    process.kill()
    process.wait()
    eventually(lambda: not alive(bank))
    process.communicate()  # not before: it would wait for the bank, which has our pipe for its standard error


def test_a_bank_that_dies_is_said_in_one_sentence(folder: Path) -> None:
    process = start("--seconds", "60", cwd=folder)
    try:
        bank = bank_of(process.pid)
        read_until(process, "audit")
        os.kill(bank, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert err.splitlines()[-1].startswith("hipq: the pretend bank does not answer any more")
    assert "Traceback" not in err


def test_when_its_reader_goes_away_it_ends_soon_and_quietly(folder: Path) -> None:
    process = start("--seconds", "300", cwd=folder)
    try:
        bank = bank_of(process.pid)
        read_until(process, "audit")
        assert process.stdout
        process.stdout.close()
        assert process.wait(60) == 1
    finally:
        process.kill()
    assert process.stderr
    assert "Traceback" not in process.stderr.read()
    assert not alive(bank)


# -- its folder ------------------------------------------------------------------------------------------------------
def test_what_is_left_of_old_runs_is_removed_and_nothing_else(tmp_path: Path) -> None:
    two_days_ago = time.time() - 2 * 86_400
    files = {"old": [FILE, f"{FILE}-wal"], "recent": [FILE], "precious": [FILE, "thesis.tex"]}
    for name, some in files.items():
        folder = tmp_path / f"hipq-demo-{name}"
        folder.mkdir()
        for file in some:
            (folder / file).touch()
        if name != "recent":
            os.utime(folder, (two_days_ago, two_days_ago))
    made = chosen_file(None)
    left = {folder.name.removeprefix("hipq-demo-") for folder in tmp_path.iterdir()}
    assert left == {"recent", "precious", made.parent.name.removeprefix("hipq-demo-")}


def test_a_named_folder_is_never_emptied(tmp_path: Path) -> None:
    assert chosen_file(str(tmp_path / "new" / "folder")) == tmp_path / "new" / "folder" / FILE
    (tmp_path / FILE).write_text("precious")
    with pytest.raises(Invalid, match="name another folder, or remove it"):
        chosen_file(str(tmp_path))
    assert (tmp_path / FILE).read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seconds", "0"),
        ("--seconds", "soon"),
        ("--seconds", "2d"),
        ("--keep", "shop.py"),
        ("--keep", "shop.py/folder"),
        ("--keep", "nul\0l"),
        ("more",),
    ],
    ids=" ".join,
)
def test_bad_usage_is_exit_2_and_makes_nothing(hipq: HipqCommand, folder: Path, arguments: tuple[str, ...]) -> None:
    before = set(folder.iterdir())
    ran = hipq("demo", *arguments)
    assert (ran.status, ran.out) == (2, "")
    assert ran.complaint
    assert set(folder.iterdir()) == before


# -- what loading it costs -------------------------------------------------------------------------------------------
def test_other_commands_do_not_load_it() -> None:
    loaded = "name for name in sys.modules if name.startswith(('hipq.cli.dem', 'hipq.demo'))"
    code = f"import sys, hipq.cli.main; print(*({loaded}))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.split() == []


def test_the_bank_needs_nothing_but_python(tmp_path: Path) -> None:
    """Alone in a folder, with none of hipq to import."""
    from hipq.demo import bank

    shutil.copy(bank.__file__, tmp_path / "bank.py")
    command = [sys.executable, "-I", "-S", str(tmp_path / "bank.py"), "1", "1"]
    with processes.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdin
        assert int(process.stdout.readline()) > 0
        process.stdin.close()
        assert process.wait(60) == 0
