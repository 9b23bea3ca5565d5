"""Which shard a key, an id or an answer belongs to."""

from __future__ import annotations

from collections import Counter

from hipq.job.model import numbered
from hipq.shards import place


def test_keys_are_shared_out_evenly() -> None:
    found = Counter(place.home(f"order-{n}", range(8)) for n in range(20_000))
    assert len(found) == 8
    assert 2_250 < min(found.values()) <= max(found.values()) < 2_750


def test_with_one_shard_more_only_the_keys_that_go_there_move() -> None:
    moved = Counter[int]()
    for n in range(10_000):
        before, after = (place.home(f"order-{n}", range(shards)) for shards in (4, 5))
        if before != after:
            moved[after] += 1
    assert moved.keys() == {4}
    assert 1_800 < moved[4] < 2_200


def test_with_one_shard_less_only_its_keys_move() -> None:
    for n in range(2_000):
        before, after = place.home(f"order-{n}", [0, 1, 2]), place.home(f"order-{n}", [0, 2])
        assert before == after or before == 1


def test_a_key_that_is_an_id_belongs_where_its_job_is() -> None:
    for slot in (0, 1, 2):
        (queue, _) = place.below(slot)
        job = numbered(77, queue + 3)
        assert place.slot_of_job(job) == slot
        assert place.home(str(job), [0, 1, 2]) == slot
    assert place.home(str(numbered(77, place.below(9)[0])), [0, 1, 2]) in (0, 1, 2)
    assert place.home("9" * 40, [0, 1, 2]) in (0, 1, 2)


def test_slots_share_no_numbers() -> None:
    for slot in (1, 2, place.SLOTS - 1):
        queue, answer = place.below(slot)
        assert place.slot_of_queue(queue) == slot == place.slot_of_queue(queue + place.QUEUES)
        assert place.slot_of_queue(queue - 1) == slot - 1
        assert place.slot_of_answer(answer + 1) == slot
        assert queue + place.QUEUES < 1 << 16
        assert answer < 1 << 62
