"""What commands say in places where a beginner looks: settings as they were written, options that belong elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from hipq import Answer, Hipq, Job, JobId, NotFound, Wait
from hipq.job.model import numbered
from hipq.testing import harness
from tests.cli.conftest import HipqCommand


def test_a_database_is_no_option_of_a_worker(hipq: HipqCommand) -> None:
    ran = hipq("worker", "shop:app", "--db", "sqlite:///other.db")
    assert ran.status == 2
    assert "$HIPQ_DATABASE_URL names another" in ran.complaint


def test_a_syntax_error_says_its_own_place(hipq: HipqCommand, folder: Path) -> None:
    (folder / "broken.py").write_text("app = Hipq(\n")
    assert hipq("worker", "broken:app").err.splitlines()[-1].endswith("(broken.py, line 1)")


def test_a_forgotten_queue_is_what_is_said(hipq: HipqCommand) -> None:
    assert "there is no queue 'report'" in hipq("cron", "change", "shop:app", "report", "*/2 * * * *").complaint


def test_durations_are_shown_as_they_are_written(hipq: HipqCommand, folder: Path) -> None:
    (folder / "hipq.toml").write_text('[worker]\nlease = "20s"\n')
    assert "20s" in next(line for line in hipq("config").out.splitlines() if "worker.lease" in line)


def test_a_running_job_has_no_code_of_an_earlier_attempt_and_its_history_begins_where_it_was_added(
    hipq: HipqCommand, shop: Hipq
) -> None:
    queue = shop.queues[0]
    tried = queue.enqueue("flaky")
    shop.run(until_empty=True)
    (entry, *_) = hipq("job", "list", "shop:app", "--json").json[0]["history"]
    assert entry["event"] == "added"
    lines = hipq("job", "show", "shop:app", str(tried)).out.splitlines()
    assert sum(" added" in line for line in lines) == 1


class Bill(BaseModel):
    amount: int


def test_why_is_its_sentence_and_has_no_links_in_it() -> None:
    app = Hipq("till", "sqlite://")
    charge = app.queue("orders").job("charge")(lambda _: Wait())

    @charge.answered
    def settled(_job: Job, answer: Answer) -> Bill:
        return Bill.model_validate(answer.data)

    with harness(app) as world:
        job_id = charge.enqueue(key="k")
        world.run_until_idle()
        charge.answer("k", {"amount": "many"})
        world.run_until_idle()
        why = app.why(job_id)
    assert str(why) == why.sentence
    assert "validation error for Bill" in str(why)
    assert "https://" not in str(why)


def test_a_job_of_a_transaction_that_is_open_is_not_there_yet(shop: Hipq) -> None:
    job_id = JobId.of(shop, numbered(99, shop.queues[0].number))
    with pytest.raises(NotFound, match="it is there once the transaction commits in which it was added"):
        _ = job_id.status
