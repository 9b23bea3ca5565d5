"""Numbers, durations, moments and data as a command line gives them: whatever they are, refused in one sentence."""

from __future__ import annotations

import re
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Final

import click

from hipq.errors import Invalid
from hipq.job import payload
from hipq.job.names import whole
from hipq.job.when import moment, seconds

if TYPE_CHECKING:
    Type = click.ParamType[Any]
else:
    Type = click.ParamType  # generic only in later releases of click

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


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
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw]?)", str(value))
        if not match:
            raise Invalid(f"{self._what} must be a number of seconds, or like 90s, 5m, 12h or 30d, not {value!r:.40}")
        return seconds(float(match[1]) * _UNITS[match[2]], self._what, least=self._least)


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
