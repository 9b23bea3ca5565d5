"""The filter of the list of jobs, as the URL has it: `/jobs?state=failed&type=charge&since=2h`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hipq.dashboard.looking import Search, planned
from hipq.dashboard.masks import masked
from hipq.errors import Invalid, shown
from hipq.job import names
from hipq.job.fault import Fault
from hipq.job.json_path import reach, steps
from hipq.job.model import Row, queue_of
from hipq.job.states import (
    ANSWERED,
    CANCELLING,
    DECIDING,
    EXECUTING,
    FINAL,
    INITIAL,
    PARKED,
    READY,
    RETRY,
    SCHEDULED,
    WAITING,
    Code,
)
from hipq.job.when import LATEST, SECOND, duration, moment, to_datetime
from hipq.stores.filters import Filter

if TYPE_CHECKING:
    from hipq.dashboard.site import Site
    from hipq.queue import Queue

FIELDS: Final = (
    "queue", "type", "state", "code", "key", "prefix", "id", "lane", "tenant", "since", "before", "error", "payload",
    "parent",
)  # fmt: skip
"""The filter's parameters in the URL. `order=oldest` beside them is no filter."""
SAID: Final = {
    "queue": "queue", "type": "type", "state": "state", "code": "last code", "key": "key", "prefix": "key begins with",
    "id": "id", "lane": "lane", "tenant": "tenant", "since": "added after", "before": "added before",
    "error": "error has", "payload": "payload has", "parent": "added by job",
}  # fmt: skip
STATES: Final[Mapping[str, Mapping[str, str]]] = {
    "live": {"table": "live"},
    "scheduled": {"state": INITIAL, "phase": SCHEDULED},
    "ready": {"phase": READY},
    "held back": {"phase": PARKED},
    "running": {"phase": EXECUTING},
    "waiting": {"phase": WAITING},
    "answered": {"phase": ANSWERED},
    "cancelling": {"phase": CANCELLING},
    "deciding": {"phase": DECIDING},
    "retrying": {"state": RETRY},
    "ended": {"state": FINAL},
    "ok": {"state": FINAL, "code": Code.OK},
    "failed": {"state": FINAL, "code": Code.FAILED},
    "error": {"state": FINAL, "code": Code.ERROR},
    "cancelled": {"state": FINAL, "code": Code.CANCELLED},
}
"""States as the dashboard writes them, and two words for many: live and ended."""
CODES: Final = (Code.OK, Code.FAILED, Code.RETRY, Code.ERROR, Code.CANCELLED)
_AS_THEY_ARE: Final = ("key", "prefix", "lane", "tenant", "error")
"""Texts that may begin or end with a space."""
_TEXT: Final = 500
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ._@:-]+")
"""Characters that JSON writes as they are, whatever has written it."""


def asked_in(get: Callable[[str], str]) -> dict[str, str]:
    """The filter that a query or a form has, as it is written there."""
    given = {name: get(name) for name in FIELDS}
    return {name: value if name in _AS_THEY_ARE else value.strip() for name, value in given.items() if value.strip()}


def searches(
    site: Site, asked: Mapping[str, str], queues: Sequence[Queue] | None = None, *, oldest: bool = False,
    table: str = "",
) -> list[Search]:  # fmt: skip
    """What this filter is in each of these queues, or in each that it is about. `table`: of these, only "live" or
    "final" jobs."""
    now, mask = site.store.now(), site.mask
    given = _given(asked, now)
    tests: list[Callable[[Row], bool]] = []
    if "payload" in asked:
        given["carries"], is_meant = _payload(asked["payload"], mask)
        tests.append(is_meant)
    if "error" in asked and mask:
        tests.append(partial(_shows, asked["error"], mask))
    if table and given.setdefault("table", table) != table:
        return []
    found = []
    for queue in queues_of(site, asked) if queues is None else queues:
        search = Search(Filter(queue.number, newest=not oldest, **given), partial(_all, tests) if tests else None)
        if "id" in asked:
            number = whole_id(asked["id"])
            search = search._replace(begin=number + (-1 if oldest else 1), end=number)
        if search.wanted.tables:
            found.append(planned(site.store, search))
    return found


def _all(tests: Sequence[Callable[[Row], bool]], row: Row) -> bool:
    return all(test(row) for test in tests)


def _shows(text: str, mask: Collection[str], row: Row) -> bool:
    """Whether this is in what is shown of its error: else a masked value could be guessed, a character at a time."""
    fault = Fault.load(row.error)
    return any(text in masked(one, mask) for one in (str(fault), fault.traceback))


def queues_of(site: Site, asked: Mapping[str, str]) -> list[Queue]:
    """The queues that a filter is about. What a key or a parent tells apart is found by their indexes: a look into
    each of a thousand queues would take seconds."""
    some = [site.queue(asked["queue"])] if "queue" in asked else list(site.queues.values())
    if "id" in asked:
        of = site.queue_of(whole_id(asked["id"])).number
        some = [queue for queue in some if queue.number == of]
    given = _given({name: asked[name] for name in ("key", "prefix", "parent") if name in asked}, 0)
    if given and len(some) > 1:
        there = site.store.having([queue.number for queue in some], Filter(0, **given))
        some = [queue for queue in some if queue.number in there]
    return some


def _given(asked: Mapping[str, str], now: int) -> dict[str, Any]:
    """Its fields, as the store's filter has them, but for the queue, the id and the payload."""
    given: dict[str, Any] = {}
    for name, (column, checked) in _CHECKED.items():
        if name in asked:
            given[column] = checked(asked[name])
    if "parent" in asked:
        given["parent"] = whole_id(asked["parent"])
    if "state" in asked:
        word = names.one_of(asked["state"], "state", STATES)
        code = given.get("code")
        given |= STATES[word]
        if code and code != given["code"]:
            raise Invalid(f"a job that is {word} does not have the code {code}")
    if "since" in asked:
        given["since"] = when(asked["since"], "added after", now)
    if "before" in asked:
        given["before"] = when(asked["before"], "added before", now)
    return given


def _text(value: str) -> str:
    if len(value) > _TEXT or not value.isprintable():
        raise Invalid(f"a text to look for has at most {_TEXT} characters, all of them printable, not {shown(value)}")
    return value


_CHECKED: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "type": ("job_type", names.job_type),
    "key": ("job_key", names.key),
    "prefix": ("prefix", names.key),
    "lane": ("lane", names.lane),
    "tenant": ("tenant", _text),
    "error": ("error", lambda value: msgspec.json.encode(_text(value)).decode()[1:-1]),  # as it is stored: in JSON
    "code": ("code", lambda value: names.one_of(value, "code", CODES)),
}


def whole_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 0 < int(text) < 1 << 63):
        raise Invalid(f"the id of a job is a number, not {shown(text)}")
    return int(text)


def places(text: str) -> dict[int, int]:
    """A place in each queue: ids with commas between, since an id says its queue."""
    ids = [whole_id(part) for part in text.split(",")] if text else []
    return {queue_of(one): one for one in ids}


def at_fixed_times(asked: Mapping[str, str], now: int) -> dict[str, str]:
    """The same filter, whenever it is read: `2h` is the time that it is now."""
    found = dict(asked)
    for name in ("since", "before"):
        if name in asked:
            found[name] = f"{to_datetime(when(asked[name], SAID[name], now)):%Y-%m-%d %H:%M:%S.%f}"
    return found


def when(text: str, what: str, now: int, *, ahead: bool = False) -> int:
    """A moment: how long ago, or how far ahead, like 2h or 30d; or a time in UTC, like 2027-01-15 08:00."""
    if re.fullmatch(r"[0-9.]{1,20}[smhdw]", text):
        away = round(duration(text, what) * SECOND)
        return min(now + away, LATEST) if ahead else max(now - away, 0)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        how = "how long from now" if ahead else "how long ago"
        raise Invalid(
            f"{what} must be {how}, like 2h or 30d, or a time in UTC, like 2027-01-15 08:00, not {shown(text)}"
        ) from None
    return moment(found if found.tzinfo else found.replace(tzinfo=UTC), what)


def _payload(text: str, mask: Collection[str]) -> tuple[str, Callable[[Row], bool]]:
    """What to look for in the text of payloads, and what looks at the field then: `customer=17`, `a.b=x`."""
    path, equals, value = _text(text).partition("=")
    if not equals or not value.strip():
        raise Invalid(f"a field in the payload is asked for like customer=17 or a.b=x, not {shown(text)}")
    way, value = steps(path.strip()), value.strip()
    if hidden := [step for step in way if step.lower() in mask]:
        raise Invalid(f"values of {hidden[0]} are not shown here, so no job is found by them")

    def is_meant(row: Row) -> bool:
        try:
            return _is(reach(masked(msgspec.json.decode(row.job_data), mask), way, "the payload"), value)
        except (Invalid, msgspec.DecodeError, RecursionError):
            return False

    fields = [step for step in way if _PLAIN.fullmatch(step) and not step.isdecimal()]
    return max(_PLAIN.findall(value) or fields, key=len, default=""), is_meant


def _is(found: Any, value: str) -> bool:
    """Whether a value of JSON is the one that is written so in the URL."""
    if isinstance(found, str):
        return found == value
    if isinstance(found, float):
        try:
            return found == float(value)
        except ValueError:
            return False
    return not isinstance(found, (dict, list)) and msgspec.json.encode(found).decode() == value
