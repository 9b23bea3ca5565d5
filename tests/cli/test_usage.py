"""Bad usage: exit 2 and one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import HipqCommand

BAD_USAGE = {
    "no command": (),
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
    "limit of half a unit": ("queue", "limit", "shop:app", "orders", "1.5"),
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


def test_a_real_process_exits_so_too(folder: Path) -> None:
    """Through the entry point, with bytes no Unicode has in its arguments."""
    command = [os.path.join(os.path.dirname(sys.executable), "hipq"), "enqueue", "shop:app", "orders", "quick"]
    done = subprocess.run([*map(os.fsencode, command), b'"\xff"'], cwd=folder, capture_output=True, timeout=30)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.splitlines()[-1] == b"hipq: data contains a lone surrogate, which is not Unicode text"


@pytest.mark.parametrize("command", ["job list shop:app --json", "demo"])
def test_a_reader_that_went_away_is_no_traceback(folder: Path, command: str) -> None:
    piped = f"{sys.executable} -m hipq.cli.main {command} | true"
    done = subprocess.run(["bash", "-c", piped], cwd=folder, capture_output=True, text=True, timeout=30)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
