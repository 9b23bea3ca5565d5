"""Units: what limits allow and what a job's `throttle_factor` takes of them. Any number with up to three decimals.

Users give and see 0.5, 2 and 100. The database and the claims count whole thousandths, as integers: 0.1 has no exact
float, and a sum of many would be above a limit that the jobs just fill, or below one that they exceed.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from hipq.errors import Invalid, shown

UNIT: Final = 1000
Number = int | float
"""A number of units, as users give and see it: an int where it is whole."""


def thousandths(value: float, what: str, least: float, most: int) -> int:
    """What a user gave, in thousandths of a unit. Refuses what is not a multiple of 0.001."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise Invalid(f"{what} must be a number from {least} to {most}, not {shown(value)}")
    found = Decimal(repr(value)) * UNIT  # as it is written: no float is 0.1
    if found % 1:
        raise Invalid(f"{what} must be a multiple of 0.001, not {shown(value)}")
    return int(found)


def number(found: int) -> Number:
    """Thousandths of a unit as a user sees them."""
    return found // UNIT if found % UNIT == 0 else found / UNIT


def units_text(found: int) -> str:
    """Thousandths of a unit as sentences have them: 1 unit, 2.5 units."""
    return f"{number(found)} unit" if found == UNIT else f"{number(found)} units"


def given(value: float, what: str, least: float, most: int) -> Number:
    """What a user gave, checked, as a user sees it."""
    return number(thousandths(value, what, least, most))


def counted(units: Number) -> int:
    """A checked number of units, in thousandths."""
    return round(units * UNIT)
