"""Which jobs and which answers to list, and the SQL conditions that say so."""

from __future__ import annotations

from typing import Any, NamedTuple

from hipq.job.states import DONE, FINAL


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
    """Part of the text of its error."""
    since: int = 0
    """Added at this moment or later;"""
    before: int | None = None
    """and before this one."""
    table: str = ""
    """"live" or "final" ones only."""
    after: int = 0
    """Ids above this one only: the next page;"""
    until: int = 0
    """and up to this one."""
    limit: int = 100

    @property
    def tables(self) -> list[str]:
        """The tables such jobs can be in: of "live" and "final" both, one or none."""
        wanted = ((self.state, FINAL), (self.phase, DONE), (self.table, "final"))
        final = {value == last for value, last in wanted if value}
        return [table for table, is_final in (("live", False), ("final", True)) if final <= {is_final}]

    def condition(self, mark: str, contains: str) -> str:
        """Its fields as SQL. `mark` is how a parameter looks, `contains` how the search in a text does."""
        columns = ("job_type", "job_key", "state", "phase", "tenant", "lane", "code")
        found = [f"{name} = {mark.format(name)}" for name in columns if getattr(self, name)]
        found += ["tenant <> ''"] if self.tenant else []  # so that the indexes for tenants are found
        found += [contains.format("error", mark.format("error"))] if self.error else []
        found += [f"create_time >= {mark.format('since')}"] if self.since else []
        found += [f"create_time < {mark.format('before')}"] if self.before is not None else []
        found += [f"id > {mark.format('after')}"] if self.after else []
        found += [f"id <= {mark.format('until')}"] if self.until else []
        return " AND ".join(found) or "true"


class AnswerFilter(NamedTuple):
    """Which answers to list. Empty fields do not filter."""

    queue: int = 0
    job_type: str = ""
    job_key: str = ""
    state: str = ""
    job: int = 0
    id: int = 0
    after: int = 0
    """Numbers above this one only: the next page."""
    limit: int = 100
    tenant: str = ""

    @property
    def given(self) -> dict[str, Any]:
        """Column and value of each that filters for one."""
        columns = ("queue", "job_type", "job_key", "state", "job", "id", "tenant")
        return {name: getattr(self, name) for name in columns if getattr(self, name)}

    def condition(self, column: str, mark: str) -> str:
        """That a column has its value; spelled so that the index for it is found. `mark` is how a parameter looks."""
        wanted = f"{column} = {mark.format(column)}"
        beside = {"job": " AND job <> 0", "tenant": " AND tenant <> ''"}
        return wanted + beside.get(column, "")
