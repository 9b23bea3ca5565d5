"""What it is for: an eta beyond the visibility time-out of Redis is delivered once (issue 337 of kombu)."""

from __future__ import annotations

from collections.abc import Callable

from tests.celery.running import Shop

TIMEOUT = "2"


def test_an_eta_beyond_the_visibility_timeout_is_delivered_once(shop: Callable[..., Shop], db: str) -> None:
    kept = shop(db=db, SHOP_VISIBILITY=TIMEOUT)
    with kept.worker("solo") as worker:
        job_id = kept.send("print(json.dumps(note.apply_async(('hello',), countdown=5).id))")
        kept.until(lambda: kept.lines("ran", job_id), worker)
        kept.until(lambda: not kept.at_broker(), worker)  # so nothing is left that could be delivered again
        assert len(kept.lines("received", job_id)) == 1
        assert [(one["word"], one["retries"]) for one in kept.lines("ran", job_id)] == [("hello", 0)]


def test_without_hipq_it_is_delivered_again_and_again(shop: Callable[..., Shop]) -> None:
    plain = shop(SHOP_VISIBILITY=TIMEOUT)
    with plain.worker("solo") as worker:
        job_id = plain.send("print(json.dumps(note.apply_async(('hello',), countdown=3600).id))")
        plain.until(lambda: len(plain.lines("received", job_id)) >= 3, worker)
        assert not plain.lines("ran")
