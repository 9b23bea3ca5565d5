"""CloudEvents that are brought to callback URLs, in both modes, by the SDK of the CloudEvents project."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent

from hipq import Hipq
from tests.callback.conftest import Post

Sign = Callable[..., str]
ABOUT = {"id": "e 1", "type": "paid", "source": "/bänk", "subject": "somebody else", "datacontenttype": "text/json"}


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_answer_is_the_event_s_data_and_its_source_and_id_are_its_own(
    app: Hipq, charge: Any, post: Post, sign: Sign, run: Callable[[], None], mode: str
) -> None:
    job_id = charge.enqueue(key="order-17")
    run()
    posted = getattr(http, f"to_{mode}_event")(CloudEvent(ABOUT, {"receipt": 9}))
    told = [post(sign(job_id), posted.body, headers=posted.headers) for _ in range(2)]
    assert [one.json for one in told] == [{"answer": "matched"}, {"answer": "duplicate"}]
    run()
    assert app.job(job_id).result == {"paid": {"receipt": 9}}
    (kept,) = app.answers.list()
    assert kept.answer_id == "/bänk e 1"


def test_an_id_in_a_header_goes_before_that_of_the_event(app: Hipq, charge: Any, post: Post, sign: Sign) -> None:
    job_id = charge.enqueue()
    posted = http.to_structured_event(CloudEvent(ABOUT, {"receipt": 9}))
    assert post(sign(job_id), posted.body, headers={**posted.headers, "Idempotency-Key": "a"}).status == 202
    assert [(one.answer_id, one.data) for one in app.answers.list()] == [("a", {"receipt": 9})]


@pytest.mark.parametrize(
    ("headers", "body", "sentence"),
    [
        ({"content-type": "application/cloudevents+json"}, {"specversion": "1.0", "id": "1"}, "has no source"),
        ({"content-type": "application/cloudevents-batch+json"}, [], "send CloudEvents one by one"),
        ({"ce-specversion": "0.3", "ce-id": "1", "ce-source": "/", "ce-type": "a"}, {}, "1.0 is the one"),
    ],
)
def test_a_bad_event_is_refused(
    app: Hipq, charge: Any, post: Post, sign: Sign, headers: dict[str, str], body: Any, sentence: str
) -> None:
    told = post(sign(charge.enqueue()), json.dumps(body).encode(), headers=headers)
    assert told.status == 400
    assert sentence in told.json["error"]
    assert app.answers.list() == []
