"""Numbers, durations, moments and data as a command line gives them: whatever they are, refused in one sentence."""

from __future__ import annotations

import re
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

import click

from hipq.errors import Invalid
from hipq.job import payload
from hipq.job.names import whole
from hipq.job.retries import Strategy, backoff, fixed, schedule
from hipq.job.units import Number, given
from hipq.job.when import duration, moment
from hipq.job.windows import Window, window

if TYPE_CHECKING:
    Type = click.ParamType[Any]
else:
    Type = click.ParamType  # generic only in later releases of click


class Whole(Type):
    """A whole number in a range."""

    name = "number"

    def __init__(self, what: str, least: int, most: int) -> None:
        self._what, self._least, self._most = what, least, most

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:  # not a number, or more digits than Python converts
            raise Invalid(
                f"{self._what} must be a whole number from {self._least} to {self._most}, not {value!r:.40}"
            ) from None
        return whole(number, self._what, self._least, self._most)


class Units(Type):
    """A number of units of a limit: whole, or with up to three decimals."""

    name = "number"

    def __init__(self, what: str, least: float, most: int) -> None:
        self._what, self._least, self._most = what, least, most

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> Number:
        if re.fullmatch(r"-?[0-9]{1,12}(?:\.[0-9]{1,12})?", str(value)) is None:
            raise Invalid(f"{self._what} must be a number from {self._least} to {self._most}, not {value!r:.40}")
        return given(float(value), self._what, self._least, self._most)


class JobId(Whole):
    def __init__(self) -> None:
        super().__init__("a job id", 1, (1 << 63) - 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not value.lstrip("-").isdigit():
            raise Invalid(f"a job id is a number, not {value!r:.40}; `hipq job list --key` finds a job by its key")
        return super().convert(value, param, ctx)


class Duration(Type):
    """Seconds, or a number with s, m, h, d or w behind it."""

    name = "duration"

    def __init__(self, what: str, least: float = 0.0) -> None:
        self._what, self._least = what, least

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> float:
        return duration(value, self._what, least=self._least)


class Retries(Type):
    """A retry strategy: backoff:5, fixed:60s:3, schedule:1s,5m,1h, none, or a registered name."""

    name = "strategy"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> Strategy | str:
        if not isinstance(value, str):
            found: Strategy = value
            return found
        name, *given = value.split(":")
        match name, len(given):
            case "backoff", 0 | 1:
                return backoff(*map(_attempts, given))
            case "fixed", 1 | 2:
                return fixed(Duration("delay").convert(given[0], None, None), *map(_attempts, given[1:]))
            case "schedule", 1:
                return schedule([Duration("delay").convert(one, None, None) for one in given[0].split(",")])
            case _, 0 if name not in ("fixed", "schedule"):
                return name
        raise Invalid(
            "retry must be like backoff:5, fixed:60s:3, schedule:1s,5m,1h, none or a registered name, "
            f"not {value!r:.60}"
        )


def _attempts(given: str) -> int:
    return Whole("attempts", 1, 1_000_000).convert(given, None, None)


class Moment(Type):
    """A moment in ISO 8601 with a time zone."""

    name = "iso-time"

    def __init__(self, what: str = "at") -> None:
        self._what = what

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> datetime:
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            raise Invalid(f"{self._what} must be a moment like 2027-01-15T08:00:00+01:00, not {value!r:.40}") from None
        moment(found, self._what)
        return found


class TimeWindow(Type):
    """A time of day: 22:00-05:00, 22:00-05:00@Europe/Rome, or 12:00-13:00 on sat,sun."""

    name = "window"

    def convert(self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None) -> Window:
        match = re.fullmatch(r"([^-@ ]+)-([^-@ ]+)(?:@([^ ]+))?(?: on ([a-z, ]+))?", str(value))
        if not match:
            raise Invalid(f"a window is like 22:00-05:00@Europe/Rome, or 12:00-13:00 on sat,sun, not {value!r:.60}")
        try:
            return window(match[1], match[2], match[3] or "UTC", re.split("[, ]+", match[4]) if match[4] else None)
        except Invalid as error:
            raise Invalid(f"window {value!r:.60}: {error}") from None


# -- data ------------------------------------------------------------------------------------------------------------
data_argument = click.argument("data", metavar="[DATA-JSON]", required=False)
data_file_option = click.option(
    "--data-file", type=click.File("rb"), help="Read the JSON from a file; - is standard input."
)


def given_data(data: str | None, file: IO[bytes] | None) -> Any:
    """What the argument says, or the file; without both, None."""
    if data is not None and file is not None:
        raise click.UsageError("give DATA-JSON or --data-file, not both")
    if file is None:
        return None if data is None else payload.parse(data)
    text = file.read(payload.SIZE_LIMIT + 1)
    if len(text) > payload.SIZE_LIMIT:
        raise Invalid(f"data has more than {payload.SIZE_LIMIT:,} bytes")
    return payload.parse(text)
