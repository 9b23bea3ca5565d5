"""The ticks of the schedule: each comes once, in its minute, and none is left out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hipq.job.when import SECOND
from tests.simulation.audit import Write, require
from tests.simulation.scene import Scene
from tests.simulation.windows import MINUTE

SOON = 5 * SECOND
"""After its time a tick is there, if engines are."""


class Ticks:
    def __init__(self, scene: Scene, stepped: bool) -> None:
        self._scene = scene
        self._stepped = stepped
        self._ticked: tuple[int, int, int] = (0, 0, 0)
        """The call of the last tick, the one before it and itself."""
        self._found: list[int] = []
        self._wanted: set[int] = set()
        """Those of the last tick that must have a job,"""
        self._without = 0
        """and how many calls left such a job out."""

    def moved(self, write: Write, rows: Iterable[dict[str, Any]]) -> None:
        """A schedule's last tick is another one; its jobs follow in the same call."""
        require(write.verb != "DELETE", "cron", "a schedule was forgotten", write)
        self._close()
        before, tick = write.old.get("last") or write.old.get("since", 0), write.new["last"] or write.new["since"]
        if write.verb == "UPDATE":
            due = tick - tick % MINUTE + MINUTE
            require(write.new["next"] == due, "cron", f"the tick after {tick} is to be {write.new['next']}", write)
            require(tick > before, "cron", f"tick {tick} came after {before}", write)
            require(tick % MINUTE == 0, "cron", f"{tick} is no tick", write)
            require(tick <= write.now or self._stepped, "cron", f"tick {tick} came early", write)
            if not self._stepped:
                self._wanted = self._wants(write, before, tick, rows)
        self._ticked = (write.call, before, tick)

    def _wants(self, write: Write, before: int, tick: int, rows: Iterable[dict[str, Any]]) -> set[int]:
        if not self._scene.overlap and any(row["job_key"].startswith("cron:") for row in rows):
            return set()  # the job of the tick before is not final
        if self._scene.missed == "all":
            return set(range(before - before % MINUTE + MINUTE, tick + 1, MINUTE))
        return {tick} if self._scene.missed == "one" or write.now - tick <= MINUTE else set()

    def added(self, write: Write) -> None:
        call, before, last = self._ticked
        tick = write.new["scheduled_run_time"]
        require(call == write.call and before < tick <= last, "cron", f"a job came without its tick {tick}", write)
        require(tick not in self._found, "cron", f"tick {tick} came twice", write)
        self._found.append(tick)
        self._wanted.discard(tick)

    def _close(self) -> None:
        self._without += bool(self._wanted)
        self._wanted = set()

    def check_end(self, failed: int, cleared: int) -> None:
        """`failed`: how often no job could be made. `cleared`: when the schedule was taken away, 0 = there was none."""
        self._close()
        last = self._ticked[2]
        came = last >= (cleared - SOON) // MINUTE * MINUTE
        require(came or not cleared, "cron", f"no tick came between {last} and {cleared}")
        require(self._without <= failed, "cron", f"{self._without} ticks had no job, and {failed} failed")
        if self._scene.missed == "all" and not failed:
            gaps = [one for one, two in zip(self._found, self._found[1:], strict=False) if two - one != MINUTE]
            require(not gaps, "cron", f"a tick after {gaps} was left out")
