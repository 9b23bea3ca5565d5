"""Which jobs and which answers to list, and the SQL conditions that say so."""

from __future__ import annotations

from typing import Final, NamedTuple

from hipq.job.answer import STATES, UNUSED
from hipq.job.states import (
    ANSWERED,
    CANCELLING,
    CODES,
    DECIDING,
    DONE,
    ERROR,
    EXECUTING,
    FINAL,
    NONE,
    PHASES,
    RETRY,
    TRANSITIONS,
    Code,
)

_PHASES: Final = {phase for phases in PHASES.values() for phase in phases}
_ENDS: Final = (Code.OK, Code.FAILED, Code.CANCELLED)
"""Codes that no live job has."""
_WRONG: Final = {
    "live": (NONE, Code.RETRY, Code.ERROR),
    "final": (Code.RETRY, Code.FAILED, Code.ERROR, Code.CANCELLED),
}
"""Codes that jobs with an error can have. A live job that was only given back has none."""
_TODO: Final = f"phase IN ('{DECIDING}', '{ANSWERED}', '{CANCELLING}') AND owner = 0"
"""The condition of the index _todo, word for word, so that the index is used."""
CHILD: Final = "substr(meta, 1, 10) = '{\"parent\":'"
"""The condition of the indexes _parent: the job was added by the handler of another."""
HIGHEST: Final = "\U0010ffff"
"""The last character there is: no key has it."""
_UNUSED: Final = ", ".join(f"'{state}'" for state in UNUSED)


class Filter(NamedTuple):
    """Which jobs to list. Empty fields do not filter."""

    queue: int
    job_type: str = ""
    job_key: str = ""
    state: str = ""
    phase: str = ""
    tenant: str = ""
    lane: str = ""
    code: str = ""
    error: str = ""
    """A part of the text of its error."""
    since: int = 0
    """The earliest moment at which it was added."""
    before: int | None = None
    """The moment before which it was added."""
    table: str = ""
    """"live" or "final", for one of the tables only."""
    newest: bool = False
    """Whether the highest ids come first."""
    after: int = 0
    """The id after which the page begins, in the order of the list."""
    until: int = 0
    """The last id that may be on the page, in the order of the list; 0 = any."""
    limit: int = 100
    prefix: str = ""
    """How its key begins."""
    carries: str = ""
    """A part of its payload, as stored. Payloads that are too large for their rows are not searched."""
    parent: int = 0
    """The job whose handler added it."""
    owned: bool | None = None
    """Whether an engine has it."""
    few: bool = False
    """Whether there are so few, in an index of another order, that all are read and sorted."""

    @property
    def order(self) -> str:
        return " DESC" if self.newest else ""

    @property
    def id(self) -> str:
        """The column `id`. With a `+` no index matches it, so that none is read for its order."""
        return "+id" if self.few else "id"

    @property
    def tables(self) -> list[str]:
        """The tables that such jobs can be in: "live" and "final", one of them, or none."""
        wanted = ((self.state, FINAL), (self.phase, DONE), (self.table, "final"))
        final = {value == last for value, last in wanted if value} | ({True} if self.code in _ENDS else set())
        return [table for table, is_final in (("live", False), ("final", True)) if final <= {is_final}]

    @property
    def parts(self) -> list[tuple[str, Filter]]:
        """These tables, each with what to look for in it. Jobs with an error are looked for code by code, by the
        indexes of what went wrong, in order."""
        parts: list[tuple[str, Filter]] = []
        for table in self.tables:
            if self.few and self.phase in (ANSWERED, CANCELLING, DECIDING):
                parts += [(table, self._replace(table=table, owned=owned)) for owned in (True, False)]
                continue
            apart = self._has_error(table) and not (self.code or self.tenant or self.job_key or self.parent)
            codes = _WRONG[table] if apart else (self.code,)
            parts += [(table, self._replace(table=table, code=code)) for code in codes]
        return parts

    @property
    def walked(self) -> Filter:
        """The conditions of a part that an index serves in the order of ids. The others are tested along the way."""
        if self.parent:
            return Filter(self.queue, parent=self.parent, table=self.table, newest=self.newest, after=self.after)
        return Filter(
            self.queue, tenant=self.tenant, job_key=self.job_key if self.tenant else "",
            code="" if self.tenant or self.code == Code.OK else self.code, state=RETRY if self.code == NONE else "",
            table=self.table, newest=self.newest, after=self.after,
        )  # fmt: skip

    @property
    def is_walked(self) -> bool:
        """Whether every job on the way matches, so that a page reads no more than it shows."""
        picky = (
            self.job_type, self.lane, self.error, self.prefix, self.carries, self.since, self.before is not None,
            self.job_key and not self.tenant, self.state not in ("", FINAL), self.phase not in ("", DONE),
            self.code == Code.OK or (self.code and self.tenant), self.parent and (self.tenant or self.code),
        )  # fmt: skip
        return not any(picky)

    def _has_error(self, table: str) -> bool:
        """Whether only jobs with an error can match."""
        return bool(self.error) or (table == "live" and (self.state in (ERROR, RETRY) or self.phase == DECIDING))

    def condition(self) -> str:
        """The filter as SQL. The words of hipq are written out, so that partial indexes are used."""
        found = self._words()
        found += ["owner <> 0", "owner > 0"] if self.phase == EXECUTING or self.owned else []
        found += [_TODO] if self.owned is False else []
        found += [f"error <> '{NONE}'"] if self.table == "live" and self._has_error("live") else []
        found += ["tenant <> ''"] if self.tenant else []  # so that the indexes for tenants are found
        compared = (
            (self.error, "{contains}(error, :error) > 0"),
            (self.prefix, f"job_key >= :prefix AND job_key < :prefix || '{HIGHEST}'"),
            (self.carries, "{contains}(job_data, :carries) > 0"),
            (self.since, "create_time >= :since"),
            (self.before is not None, "create_time < :before"),
            (self.after, f"{self.id} {'<' if self.newest else '>'} :after"),
            (self.until, f"{self.id} {'>=' if self.newest else '<='} :until"),
        )
        return " AND ".join(found + [sql for is_asked, sql in compared if is_asked]) or "true"

    def _words(self) -> list[str]:
        """The conditions on single words: a name that was given, or a word of hipq."""
        found = [f"{name} = :{name}" for name in ("job_type", "job_key", "tenant", "lane") if getattr(self, name)]
        found += [CHILD, "{parent} = :parent"] if self.parent else []
        words = (("state", self.state, TRANSITIONS), ("phase", self.phase, _PHASES), ("code", self.code, CODES))
        told = (FINAL, DONE) if self.table == "final" else ()  # by the table: no row need be read to see it
        found += [
            f"{name} = '{word}'" if word in known else "false"
            for name, word, known in words
            if word and word not in told
        ]
        return found


class AnswerFilter(NamedTuple):
    """Which answers to list. Empty fields do not filter."""

    queue: int = 0
    job_type: str = ""
    job_key: str = ""
    state: str = ""
    job: int = 0
    id: int = 0
    newest: bool = False
    """Whether the highest numbers come first."""
    after: int = 0
    """The number after which the page begins, in the order of the list."""
    limit: int = 100
    tenant: str = ""
    queues: tuple[int, ...] = ()
    """The queues to whose jobs the answers belong."""
    unused: bool = False
    """Whether only answers match that no job has used."""
    within: int = 0
    """How many answers to look at, whatever their job type, since no index has the type; 0 = all."""

    @property
    def order(self) -> str:
        return " DESC" if self.newest else ""

    def condition(self) -> str:
        """The filter as SQL, spelled so that the index for each field is used."""
        columns = ("queue", "job_type", "job_key", "job", "id", "tenant")
        found = [f"{name} = :{name}" for name in columns if getattr(self, name)]
        # A partial index is found by its own words: plans are made without the values.
        found += [f"state = '{self.state}'" if self.state in STATES else "false"] if self.state else []
        found += [f"state IN ({_UNUSED})"] if self.unused or self.state in UNUSED else []
        found += ["job <> 0"] if self.job else []
        found += ["job_key <> ''"] if self.job_key else []
        found += ["tenant <> ''"] if self.tenant else []
        found += ["queue {in queues}"] if self.queues else []
        found += [f"id {'<' if self.newest else '>'} :after"] if self.after or not (self.queues or self.newest) else []
        return " AND ".join(found)
