"""honker, with a hand-written loop around its calls for batches: what its store can do, without its worker."""

from __future__ import annotations

import time

from drive_honker import Honker, nothing
from driver import serve

BATCH = 500


class HonkerBatch(Honker):
    setting = f"hand-written loop of claim_batch({BATCH}) and ack_batch; its SQLite is WAL, synchronous NORMAL"

    def drain(self, count: int) -> float:
        began = time.perf_counter()
        while count:
            jobs = self.queue.claim_batch("worker", BATCH)
            for job in jobs:
                nothing(job.payload)
            acknowledged = self.queue.ack_batch([job.id for job in jobs], "worker")
            if acknowledged != len(jobs) or not jobs:
                raise AssertionError(f"{acknowledged} of {len(jobs)} jobs were acknowledged")
            count -= acknowledged
        return time.perf_counter() - began


if __name__ == "__main__":
    serve(HonkerBatch)
