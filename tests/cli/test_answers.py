"""`hipq answers`: with the code and without it, on both stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipq import Hipq, Job
from hipq.cli import show_answers, which_answers
from hipq.dashboard.site import Site
from hipq.dashboard.visit import Role, Visit, Visitor
from hipq.job.answer import STATES
from hipq.job.progress import Report
from hipq.job.when import to_datetime
from tests.cli.conftest import HipqCommand, waiting
from tests.cli.terminal import HIPQ, on_terminal
from tests.databases import sql


# -- looking ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def some(program: Hipq) -> list[int]:
    """Answers in the inbox, by their numbers."""
    program.answer("orders", "charge", "a", 1, answer_id="one")
    program.answer("orders", "charge", "b", 2)
    program.answer("orders", "steps", "b", 3)
    program.answer("mails", "mail", "c", 4, answer_id="four")
    program.answer("mails", "mail", "c", 4, answer_id="four")
    return [one.id for one in program.answers.list()]


def listed(hipq: HipqCommand, where: list[str], *options: str) -> list[int]:
    return [one["number"] for one in hipq("answers", "list", *where, "--json", *options).json]


def test_answers_are_filtered_and_paged(hipq: HipqCommand, some: list[int], where: list[str]) -> None:
    assert listed(hipq, where) == some
    assert listed(hipq, where, "-q", "orders") == some[:3]
    assert listed(hipq, where, "--type", "charge") == some[:2]
    assert listed(hipq, where, "--key", "b") == some[1:3]
    assert listed(hipq, where, "--key", "b", "--type", "steps", "--state", "buffered") == some[2:3]
    assert listed(hipq, where, "--state", "late") == []
    assert listed(hipq, where, "--limit", "2") == some[:2]
    assert listed(hipq, where, "--limit", "2", "--after", str(some[1])) == some[2:]
    assert listed(hipq, where, "--job", "65537") == []


def test_the_list_as_people_read_it(hipq: HipqCommand, some: list[int], where: list[str]) -> None:
    head, *lines = hipq("answers", "list", *where).out.splitlines()
    assert " ".join(head.split()) == "number queue type key state job copies arrived keep until id"
    assert len(lines) == len(some)
    assert lines[3].split()[:6] == [str(some[3]), "mails", "mail", "c", "buffered", "2"]
    assert lines[3].endswith("four")


def test_show_says_what_it_is_and_what_that_means(
    hipq: HipqCommand, program: Hipq, some: list[int], where: list[str]
) -> None:
    text = hipq("answers", "show", *where, str(some[3])).out
    assert "state              buffered: kept until a job wants it\n" in text
    assert "id                 four\n" in text
    assert "copies             2\n" in text
    assert text.endswith("data               4\n")
    shown = hipq("answers", "show", *where, str(some[0]), "--json").json
    assert (shown["number"], shown["id"], shown["data"], shown["job"]) == (some[0], "one", 1, None)
    assert shown["meaning"] == STATES["buffered"]
    job = waiting(program, "orders", "steps", "d")
    program.answer("orders", "steps", "d", "an \x1b[2J end", error=True, attempt=1)
    number = listed(hipq, where, "--job", str(job))[0]
    text = hipq("answers", "show", *where, str(number)).out
    assert "state              matched: its job has it, and has not looked at it yet\n" in text
    assert "says               the work failed\n" in text
    assert f"job                {job}\nattempt            1\n" in text
    assert "\x1b" not in text


def test_an_answer_kept_for_a_job_that_ended_without_it_is_late(
    hipq: HipqCommand, program: Hipq, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job never waited: nobody has written to the answer since."""
    monkeypatch.setattr(which_answers, "_PAGE", 1)
    (orders, _) = program.queues
    program.answer("orders", "charge", "other", 0)

    @orders.job
    def hasty(job: Job[Any]) -> None:
        program.answer("orders", "hasty", job.key, "never read")

    first, second = orders.enqueue("hasty", key="a"), orders.enqueue("hasty", key="b")
    program.run(until_empty=True)
    buffered, *late = [one.id for one in program.answers.list(state="buffered")]
    assert listed(hipq, where, "--state", "buffered") == [buffered]
    assert listed(hipq, where, "--state", "late") == late
    assert listed(hipq, where, "--state", "late", "--limit", "1") == late[:1]
    assert listed(hipq, where, "--state", "late", "--limit", "1", "--after", str(late[0])) == late[1:]
    assert [one["state"] for one in hipq("answers", "list", *where, "--json").json] == ["buffered", "late", "late"]
    assert f"late: {STATES['late']}" in hipq("answers", "show", *where, str(late[0])).out
    assert hipq("job", "show", *where, str(first), "--json").json["answers"][0]["state"] == "late"
    program.jobs.prune(0)
    assert listed(hipq, where, "--state", "late") == late  # the job is gone, and the answer was to it
    assert hipq("answers", "list", *where, "--job", str(second), "--json").json[0]["state"] == "late"


def test_counts_say_what_each_state_means(hipq: HipqCommand, some: list[int], where: list[str]) -> None:
    rows = {row["state"]: row for row in hipq("answers", "count", *where, "--json").json}
    assert list(rows) == list(STATES)
    assert rows["buffered"] == {"state": "buffered", "answers": 4, "copies": 5, "meaning": STATES["buffered"]}
    assert rows["settled"]["answers"] == 0
    mails = {row["state"]: row for row in hipq("answers", "count", *where, "-q", "mails", "--json").json}
    assert mails["buffered"]["copies"] == 2
    assert "kept until a job wants it" in hipq("answers", "count", *where).out
    assert len(some) == 4


def test_a_job_that_another_program_wrote_wrongly_is_shown_with_a_note(
    hipq: HipqCommand, program: Hipq, where: list[str]
) -> None:
    queue = program.queues[0]
    job_id = int(queue.enqueue("quick", delay=3600))
    (tables,) = (one for one in program.store.queues() if one.number == queue.number)
    wrong = {"history": '[{"at": "x"}, 5]', "time_windows": "nonsense", "job_data": "[1", "update_time": 1 << 62}
    query = f"UPDATE {tables.table} SET " + ", ".join(f"{name} = '{one}'" for name, one in wrong.items())
    sql(program.url, query)
    shown = hipq("job", "show", *where, str(job_id), "--json")
    last = shown.json["history"][-1]
    assert (shown.status, last["event"], last["count"]) == (0, "unreadable", 2)
    assert "another program wrote what cannot be read here" in shown.json["data"]
    assert "unreadable" in hipq("job", "show", *where, str(job_id)).out
    page = Site([program]).reply(Visit("GET", f"/jobs/{job_id}", "", {}, {}, {}, Visitor("ann", Role.VIEW)))
    assert (page.status, page.body.count(b"cannot be read")) == (200, 2), page.body.decode()[-1500:]


def test_a_job_is_shown_with_its_progress(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    job_id = waiting(program, "orders", "steps", "k")
    assert hipq("job", "show", *where, str(job_id), "--json").json["progress"] is None
    assert "progress " not in hipq("job", "show", *where, str(job_id)).out
    row = program.store.get(job_id)
    assert row
    now = program.store.now()
    program.store.report([Report(row.id, row.token, row.attempt, 0.999, "page \x1b[31m 9")], now)
    shown = hipq("job", "show", *where, str(job_id), "--json").json["progress"]
    assert shown == {"fraction": 0.999, "message": "page \x1b[31m 9", "at": to_datetime(now).isoformat()}
    (line,) = [one for one in hipq("job", "show", *where, str(job_id)).out.splitlines() if one.startswith("progress ")]
    assert line.startswith("progress           99% page \\x1b[31m 9 (20")


def test_a_job_is_shown_with_its_answers(
    hipq: HipqCommand, program: Hipq, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = waiting(program, "orders", "steps", "k")
    assert "answers" not in hipq("job", "show", *where, str(job_id)).out
    for data in (None, "done"):
        program.answer("orders", "steps", "k", data, answer_id=f"<{data}>")
        program.run(until_empty=True)
    shown = hipq("job", "show", *where, str(job_id), "--json").json
    assert [(one["state"], one["id"]) for one in shown["answers"]] == [("progress", "<None>"), ("settled", "<done>")]
    assert shown["more_answers"] is False
    lines = hipq("job", "show", *where, str(job_id)).out.splitlines()
    assert lines[-4:-2] == ["answers", "  number  state     arrived               id"]
    assert lines[-1].endswith("<done>")
    monkeypatch.setattr(show_answers, "FEW", 1)
    assert hipq("job", "show", *where, str(job_id)).out.endswith(f"\n  and more: hipq answers list --job {job_id}\n")
    assert hipq("job", "show", *where, str(job_id), "--json").json["more_answers"] is True


# -- changing --------------------------------------------------------------------------------------------------------
def test_replay_lets_an_answer_come_again(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    """It came far too early, as its queue's code has it."""
    program.answer("orders", "charge", "k", "paid")
    (number,) = listed(hipq, where)
    again = hipq("answers", "replay", *where, str(number))
    (after,) = listed(hipq, where)
    assert again.out == f"buffered: kept until a job wants it (answer {after} now)\n"
    program.answers.drop(after)
    job_id = waiting(program, "orders", "charge", "k")
    program.answer("orders", "charge", "typo", "paid")
    (number,) = listed(hipq, where)
    done = hipq("answers", "rekey", *where, str(number), "k", "--json").json
    assert (done["outcome"], done["job"], done["key"], done["type"]) == ("matched", job_id, "k", "charge")
    program.run(until_empty=True)
    assert program.job(job_id).result == {"settled": "paid"}
    used = hipq("answers", "replay", *where, str(done["number"]))
    assert used.status == 1
    assert used.complaint.endswith("is settled: its job ended with it")


def test_what_replay_says_of_each_outcome(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    def replayed(key: str, data: Any, to: str, *options: str) -> str:
        program.answer("orders", "charge", key, data)
        (found,) = program.answers.list(key=key)
        return hipq("answers", "rekey", *where, str(found.id), to, *options).out

    job_id = waiting(program, "orders", "charge", "k")
    assert replayed("a", 1, "k").startswith(f"matched: job {job_id} has it (answer ")
    assert replayed("b", 2, "k").startswith(f"buffered: kept for job {job_id} (answer ")
    program.run(until_empty=True)
    assert replayed("c", 1, "k").startswith("duplicate: it is the same as answer ")
    assert replayed("d", 3, "k").startswith(f"conflict: job {job_id} had ended with another one (answer ")
    late = waiting(program, "orders", "steps", "k")
    program.cancel(late)
    assert replayed("e", 1, "k", "--type", "steps").startswith(f"late: job {late} had ended")


def test_a_dropped_answer_is_gone_one_that_a_job_has_is_not(
    hipq: HipqCommand, program: Hipq, some: list[int], where: list[str]
) -> None:
    assert hipq("answers", "drop", *where, str(some[0]), "--yes").out == f"dropped answer {some[0]}\n"
    assert hipq("answers", "drop", *where, str(some[1]), "-y", "--json").json == {"dropped": [some[1]]}
    assert listed(hipq, where) == some[2:]
    waiting(program, "orders", "charge", "k")
    program.answer("orders", "charge", "k", 1)
    ran = hipq("answers", "drop", *where, str(listed(hipq, where)[-1]), "--yes")
    assert ran.status == 1
    assert ran.out == ""
    assert "has not looked at it yet" in ran.complaint


def test_drop_asks_first_and_says_so_where_nobody_can_be_asked(
    hipq: HipqCommand, some: list[int], where: list[str]
) -> None:
    ran = hipq("answers", "drop", *where, str(some[0]))
    assert (ran.status, ran.out) == (2, "")
    assert f"Delete answer {some[0]}? There is no terminal to ask on: say --yes" in ran.complaint
    assert listed(hipq, where) == some


def test_drop_asks_on_a_terminal(shop: Hipq, folder: Path) -> None:
    shop.answer("orders", "charge", "k", 1)
    (kept,) = shop.answers.list()
    command = [*HIPQ, "answers", "drop", "shop:app", str(kept.id)]
    asked = f"Delete answer {kept.id}? [y/N]: "
    no = on_terminal(command, folder, typed="n\n", after=asked)
    assert (no.status, no.lines[-1]) == (1, "hipq: nothing was changed")
    assert len(shop.answers.list()) == 1
    yes = on_terminal(command, folder, typed="y\n", after=asked)
    assert (yes.status, yes.lines[-1]) == (0, f"dropped answer {kept.id}")
    assert shop.answers.list() == []


def test_answers_are_dropped_by_what_they_are(
    hipq: HipqCommand, program: Hipq, some: list[int], where: list[str]
) -> None:
    """Not those that are too young, nor one that its job has not looked at."""
    waiting(program, "orders", "charge", "k")
    program.answer("orders", "charge", "k", 1)
    (matched,) = listed(hipq, where, "--state", "matched")
    assert hipq("answers", "drop", *where, "--older-than", "1h", "--yes").out == "dropped 0 answers\n"
    assert listed(hipq, where, "--older-than", "1h") == []
    assert listed(hipq, where, "--older-than", "0") == [*some, matched]
    refused = hipq("answers", "drop", *where, "-q", "orders", "--older-than", "0")
    assert "Delete 4 answers?" in refused.complaint
    ran = hipq("answers", "drop", *where, "-q", "orders", "--older-than", "0", "--yes")
    assert (ran.status, ran.out) == (0, "dropped 3 answers\n")
    assert f"left alone: 1 answer; the first: answer {matched} cannot be dropped" in ran.err
    assert listed(hipq, where) == [some[3], matched]
    assert hipq("answers", "drop", *where, "--key", "c", "--yes", "--json").json == {"dropped": [some[3]]}


def test_many_pages_are_dropped(
    hipq: HipqCommand, program: Hipq, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(which_answers, "_PAGE", 3)
    for number in range(10):
        program.answer("orders", "charge", f"k-{number}")
    assert len(hipq("answers", "drop", *where, "--state", "buffered", "-y", "--json").json["dropped"]) == 10
    assert program.answers.list() == []


def test_answers_are_replayed_by_what_they_are(
    hipq: HipqCommand, program: Hipq, some: list[int], where: list[str]
) -> None:
    job_id = waiting(program, "orders", "charge", "late")
    program.cancel(job_id)
    program.answer("orders", "charge", "late", "after all")
    again = program.queues[0].enqueue("charge", key="late")
    ran = hipq("answers", "replay", *where, "--state", "late", "--yes")
    assert (ran.status, ran.out) == (0, "replayed 1 answer: 1 buffered\n")
    program.run(until_empty=True)
    assert program.job(again).result == {"settled": "after all"}
    rows = hipq("answers", "replay", *where, str(some[0]), str(some[1]), "--json").json
    assert [(row["outcome"], row["key"]) for row in rows] == [("buffered", "a"), ("buffered", "b")]
    assert not set(some[:2]) & set(listed(hipq, where))
    for options in ((), (str(some[2]), "--key", "b")):
        assert "say which answers" in hipq("answers", "replay", *where, *options).complaint
    assert "come again?" in hipq("answers", "replay", *where, "--key", "c").complaint


def test_a_page_says_how_to_get_the_next_one(hipq: HipqCommand, some: list[int], where: list[str]) -> None:
    ran = hipq("answers", "list", *where, "--limit", "3", "--state=buffered", "--after", "0")
    assert len(ran.out.splitlines()) == 4
    (line,) = [line for line in ran.err.splitlines() if not line.startswith("database: ")]
    start, command = line.split(": ", 1)
    assert start == "there is more"
    assert command == f"hipq answers list {' '.join(where)} --limit 3 --state=buffered --after {some[2]}"
    last = hipq(*command.split()[1:])
    assert str(some[3]) in last.out
    assert "there is more" not in last.err
    assert "there is more" in hipq("answers", "list", *where, "--limit", "3", "--json").err


def test_no_answers_is_said_and_stays_json(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    assert program.answers.list() == []
    ran = hipq("answers", "list", *where)
    assert (ran.status, ran.out) == (0, "")
    assert "no answers found" in ran.err.splitlines()
    assert hipq("answers", "list", *where, "--json").out == "[]\n"


def test_an_answer_that_is_not_there_is_exit_1(hipq: HipqCommand, some: list[int], where: list[str], url: str) -> None:
    farm = Hipq("farm", url)
    farm.queue("cows")
    farm.answer("cows", "milk", "rosa", 5)
    (foreign,) = farm.answers.list()
    farm.close()
    missing = [some[-1] + 1000, (1 << 63) - 1]
    for number in [*missing, foreign.id] if where == ["shop:app"] else missing:
        for name in ("show", "replay", "drop", "rekey"):
            ran = hipq("answers", name, *where, str(number), *(["k"] if name == "rekey" else []))
            assert (ran.status, ran.out) == (1, "")
            assert f"there is no answer {number} here" in ran.complaint
    if where != ["shop:app"]:
        assert hipq("answers", "show", *where, str(foreign.id), "--json").json["app"] == "farm"
        assert listed(hipq, where) == [*some, foreign.id]
        assert hipq("answers", "drop", *where, str(foreign.id), "--yes").status == 0


def test_prune_deletes_answers_too(hipq: HipqCommand, program: Hipq, where: list[str]) -> None:
    short = Hipq("shop", program.url)
    short.queue("orders", answer_ttl=1)
    short.queue("mails", order="priority")
    short.answer("orders", "charge", "k")
    program.answer("mails", "mail", "k")
    pruned = 0
    for _ in range(200):
        assert hipq("prune", *where, "--older-than", "1d", "-q", "orders", "--yes").out == "deleted 0 jobs\n"
        pruned = hipq("prune", *where, "--older-than", "1d", "--json", "--yes").json["answers"]
        if pruned:
            break
    assert pruned == 1
    assert [one.key for one in short.answers.list()] == ["k"]
    assert hipq("prune", *where, "--older-than", "1d", "--yes").out == "deleted 0 jobs and 0 answers\n"
    short.close()
