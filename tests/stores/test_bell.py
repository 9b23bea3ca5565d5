"""A ring is never lost."""

from __future__ import annotations

from hipq.stores.bell import Bell


class RungLate(Bell):
    """Somebody rings right after a wait has looked whether anybody had."""

    looks = 0
    flag = False

    @property
    def _rung(self) -> bool:
        seen = self.flag
        self.looks += 1
        if self.looks == 2:
            self.flag = True
        return seen

    @_rung.setter
    def _rung(self, value: bool) -> None:
        self.flag = value


def test_a_ring_at_the_end_of_a_wait_is_heard_by_the_next() -> None:
    bell = RungLate()
    assert bell.wait(0) == (False, [])
    assert bell.wait(5) == (True, [])
    assert bell.wait(0) == (False, [])
    bell.close()
