"""Names, keys and numbers that users give. What is not allowed is refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from hipq.errors import Invalid, shown
from hipq.job import units
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN

TableNaming = Callable[[str, str], str]

_NAME: Final = re.compile(r"[a-z][a-z_]{0,39}")
_TABLE: Final = re.compile(r"[a-z_][a-z0-9_]{0,49}")
_TAKEN: Final = ("hipq_", "sqlite_", "pg_")
_TYPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")
KEY_LIMIT: Final = 500
LANE_LIMIT: Final = 300
FACTOR_MIN: Final = 0.001
FACTOR_MAX: Final = 1_000_000


def name(value: str, what: str) -> str:
    """The name of an instance or a queue: lower case letters and underscores."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise Invalid(
            f"{what} must be 1 to 40 lower case letters and underscores, starting with a letter, not {shown(value)}"
        )
    return value


def instance(value: str) -> str:
    """The name of an instance whose tables are named after it."""
    if f"{value}_".startswith(_TAKEN):
        raise Invalid(
            f"an instance cannot be named {value}: its tables would begin with {value}_, like those of hipq or of the "
            'database itself; name it after your application, like Hipq("shop")'
        )
    return value


def table(value: str) -> str:
    """A table name made by a naming strategy; short enough that index names fit PostgreSQL's 63 characters."""
    if not isinstance(value, str) or not _TABLE.fullmatch(value) or value.startswith(_TAKEN):
        raise Invalid(
            "a table name must be 1 to 50 lower case letters, digits and underscores and not start with "
            f"hipq_, sqlite_ or pg_, not {shown(value)}"
        )
    return value


def default_table_naming(hipq: str, queue: str) -> str:
    return f"{hipq}_{queue}"


def job_type(value: str, what: str = "a job type") -> str:
    if not isinstance(value, str) or not _TYPE.fullmatch(value):
        raise Invalid(f"{what} must be 1 to 200 letters, digits, '_', '.' or '-', not {shown(value)}")
    return value


def strategy(value: str) -> str:
    return job_type(value, "a retry strategy's name")


def key(value: str) -> str:
    """A job key: any text one can print and store, up to 500 characters."""
    if not isinstance(value, str):
        raise Invalid(f"a job key must be a string, not {type(value).__name__}")
    if not 1 <= len(value) <= KEY_LIMIT:
        raise Invalid(f"a job key must have 1 to {KEY_LIMIT} characters, this one has {len(value)}")
    if not value.isprintable():
        raise Invalid(f"a job key must not contain control characters or broken Unicode: {shown(value)}")
    return value


def tenant(value: str) -> str:
    """The name of a tenant of a daemon, for options that choose what belongs to the tenant."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise Invalid(f"tenant must be a text that is not empty and can be printed, not {shown(value)}")
    return value


def lane(value: str) -> str:
    """A lane: a short text one can print; "" is the lane of jobs that have none."""
    if not isinstance(value, str):
        raise Invalid(f"a lane must be a string, not {type(value).__name__}")
    if len(value) > LANE_LIMIT or not value.isprintable():
        raise Invalid(f"a lane must have at most {LANE_LIMIT} characters, all of them printable, not {shown(value)}")
    return value


def reason(value: str) -> str:
    """Why a job was cancelled: a line or two."""
    if not isinstance(value, str) or not 1 <= len(value) <= 1000 or not value.isprintable():
        raise Invalid("a reason must have 1 to 1000 characters, all of them printable")
    return value


def one_of(value: str, what: str, known: Iterable[str]) -> str:
    if value not in known:
        raise Invalid(f"there is no {what} {shown(value)}; there are {', '.join(known)}")
    return value


def whole(value: int, what: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Invalid(f"{what} must be a whole number from {least} to {most}, not {shown(value)}")
    return value


def priority(value: int) -> int:
    return whole(value, "priority", PRIORITY_MIN, PRIORITY_MAX)


def throttle_factor(value: float) -> int:
    """A throttle factor in thousandths of a unit."""
    return units.thousandths(value, "throttle_factor", FACTOR_MIN, FACTOR_MAX)
