"""Numbers, durations, moments and data as a command line gives them: whatever they are, refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

import click

from hipq.cli.commands import Decorator, together
from hipq.errors import Invalid
from hipq.job import payload
from hipq.job.model import queue_of
from hipq.job.names import FACTOR_MAX, FACTOR_MIN, whole
from hipq.job.order import PRIORITY_MAX, PRIORITY_MIN
from hipq.job.retries import Strategy, backoff, fixed, schedule
from hipq.job.units import Number, given
from hipq.job.when import duration, moment
from hipq.job.windows import Window, window

if TYPE_CHECKING:
    Type = click.ParamType[Any]
else:
    Type = click.ParamType  # generic only in later releases of click


class Parsed(Type):
    """A parameter whose values are made by `parse`, with what the type was made with: the name of the value first."""

    parse: Callable[..., Any]

    def __init__(self, *given: Any) -> None:
        self._given = given

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.parse(value, *self._given)
        except Invalid as error:
            name = param.name or "" if param else ""
            if ctx is None or ctx.get_parameter_source(name) is not click.core.ParameterSource.ENVIRONMENT:
                raise
            raise Invalid(f"${ctx.auto_envvar_prefix}_{name.upper()}: {error}") from None


class Whole(Parsed):
    """A whole number in a range."""

    name = "number"

    @staticmethod
    def parse(value: Any, what: str, least: int, most: int) -> int:
        try:
            number = int(value)
        except ValueError:  # not a number, or more digits than Python converts
            raise Invalid(f"{what} must be a whole number from {least} to {most}, not {value!r:.40}") from None
        return whole(number, what, least, most)


class Units(Parsed):
    """A number of units of a limit: whole, or with up to three decimals."""

    name = "number"

    @staticmethod
    def parse(value: Any, what: str, least: float, most: int) -> Number:
        if re.fullmatch(r"-?[0-9]{1,12}(?:\.[0-9]{1,12})?", str(value)) is None:
            raise Invalid(f"{what} must be a number from {least} to {most}, not {value!r:.40}")
        return given(float(value), what, least, most)


class JobId(Parsed):
    name = "number"

    @staticmethod
    def parse(value: Any) -> int:
        if isinstance(value, str) and not value.lstrip("-").isdigit():
            raise Invalid(f"a job id is a number, not {value!r:.40}; `hipq job list --key` finds a job by its key")
        return Whole.parse(value, "a job id", 1, (1 << 63) - 1)


class Places(Parsed):
    """Ids of jobs with commas between them, by the numbers of their queues."""

    name = "numbers"

    @staticmethod
    def parse(value: Any) -> dict[int, int]:
        given = value if isinstance(value, dict) else {one: one for one in str(value).split(",")}
        ids = [Whole.parse(one, "after", 0, (1 << 63) - 1) for one in given.values()]
        return {queue_of(job_id): job_id for job_id in ids}


class Duration(Parsed):
    """Seconds, or a number with s, m, h, d or w behind it."""

    name = "duration"

    @staticmethod
    def parse(value: Any, what: str, least: float = 0.0) -> float:
        return duration(value, what, least=least)


class Retries(Parsed):
    """A retry strategy: backoff:5, fixed:60s:3, schedule:1s,5m,1h, none, or a registered name."""

    name = "strategy"

    @staticmethod
    def parse(value: Any) -> Strategy | str:
        if not isinstance(value, str):
            found: Strategy = value
            return found
        name, *given = value.split(":")
        match name, len(given):
            case "backoff", 0 | 1:
                return backoff(*map(_attempts, given))
            case "fixed", 1 | 2:
                return fixed(Duration.parse(given[0], "delay"), *map(_attempts, given[1:]))
            case "schedule", 1:
                return schedule([Duration.parse(one, "delay") for one in given[0].split(",")])
            case _, 0 if name not in ("fixed", "schedule"):
                return name
        raise Invalid(
            "retry must be like backoff:5, fixed:60s:3, schedule:1s,5m,1h, none or a registered name, "
            f"not {value!r:.60}"
        )


def _attempts(given: str) -> int:
    return Whole.parse(given, "attempts", 1, 1_000_000)


class Moment(Parsed):
    """A moment in ISO 8601 with a time zone."""

    name = "iso-time"

    @staticmethod
    def parse(value: Any, what: str = "at") -> datetime:
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            raise Invalid(f"{what} must be a moment like 2027-01-15T08:00:00+01:00, not {value!r:.40}") from None
        moment(found, what)
        return found


class TimeWindow(Parsed):
    """A time of day: 22:00-05:00, 22:00-05:00@Europe/Rome, or 12:00-13:00 on sat,sun."""

    name = "window"

    @staticmethod
    def parse(value: Any) -> Window:
        match = re.fullmatch(r"([^-@ ]+)-([^-@ ]+)(?:@([^ ]+))?(?: on ([a-z, ]+))?", str(value))
        if not match:
            raise Invalid(f"a window is like 22:00-05:00@Europe/Rome, or 12:00-13:00 on sat,sun, not {value!r:.60}")
        try:
            return window(match[1], match[2], match[3] or "UTC", re.split("[, ]+", match[4]) if match[4] else None)
        except Invalid as error:
            raise Invalid(f"window {value!r:.60}: {error}") from None


def number_option(names: str, least: int, most: int, default: int, about: str, metavar: str | None = None) -> Decorator:
    """An option for a whole number in a range: its names, apart by spaces, and its default."""
    words = names.split()
    kind = Whole(next(word for word in words if word.startswith("--")).removeprefix("--"), least, most)
    return click.option(*words, type=kind, default=default, show_default=True, help=about, metavar=metavar)


# -- data ------------------------------------------------------------------------------------------------------------
data_argument = together(
    click.argument("data", metavar="[DATA-JSON]", required=False),
    click.option("--data-file", type=click.File("rb"), help="Read the JSON from a file; - is standard input."),
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


# -- options of jobs -------------------------------------------------------------------------------------------------
job_options = together(
    click.option("--priority", type=Whole("priority", PRIORITY_MIN, PRIORITY_MAX),
                 help="Lower goes first; may be negative."),
    click.option("--lane", help="The job's lane; by default what the queue's lane_by returns."),
    click.option("--throttle-factor", type=Units("throttle_factor", FACTOR_MIN, FACTOR_MAX),
                 help="How many units it counts as: 2, or 0.5."),
    click.option("--window", "windows", type=TimeWindow(), multiple=True,
                 help="Start only then: 22:00-05:00@Europe/Rome. As often as wanted."),
    click.option("--timeout", type=Duration("timeout", 0.001), help="How long an attempt may take."),
    click.option("--retry", type=Retries(), help="How it is retried, whatever its type says: backoff:5 "
                 "(attempts), fixed:60s:3 (delay, attempts), schedule:1s,5m,1h (delays), none, or the name of a "
                 "registered strategy."),
)  # fmt: skip
"""What a job may have of its own; `given_options` makes options of `enqueue` of these."""


def given_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that were given."""
    return {name: value for name, value in options.items() if value not in (None, ())}
