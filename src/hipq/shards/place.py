"""Which shard has what: told by the id of a job or the number of an answer, or computed from a key. Pure.

Each shard has a slot. Its database numbers queues from the slot's range, and ids contain the number of their queue; so
an id finds its job without a directory.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Final

from hipq.job.model import QUEUE_BITS, queue_of

SLOT_BITS: Final = 10
SLOTS: Final = 1 << SLOT_BITS
_QUEUE_SHIFT: Final = QUEUE_BITS - SLOT_BITS
QUEUES: Final = (1 << _QUEUE_SHIFT) - 1
"""How many queues each shard can have."""
_ANSWER_SHIFT: Final = 48


def slot_of_queue(number: int) -> int:
    return number >> _QUEUE_SHIFT


def slot_of_job(job_id: int) -> int:
    return slot_of_queue(queue_of(job_id))


def slot_of_answer(number: int) -> int:
    return number >> _ANSWER_SHIFT


def below(slot: int) -> tuple[int, int]:
    """The numbers above which a slot's queues and answers are numbered."""
    return slot << _QUEUE_SHIFT, slot << _ANSWER_SHIFT


def home(key: str, slots: Collection[int]) -> int:
    """The slot, of these, to which a key belongs (rendezvous hashing). With one slot more, only the keys that go there
    move; with one less, only those that were there. A key that is an id belongs where the job is that has this id: a
    job without a key has its id as key."""
    if key.isdecimal() and len(key) < 19 and (slot := slot_of_job(int(key))) in slots:
        return slot
    hashed = blake2b(key.encode(), digest_size=8).digest()
    return max(slots, key=lambda slot: blake2b(hashed + slot.to_bytes(2, "big"), digest_size=8).digest())
