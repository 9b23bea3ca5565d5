"""What operators ask of a daemon: many jobs at once, cron schedules, tenants, tokens, the audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from hipq.client.steps import ClientRequest, Steps, verb
from hipq.client.verbs import JSON, Seen, Verbs, as_query
from hipq.errors import Invalid

BULK_SECONDS: Final = 60.0
"""Seconds that one step of a change of many jobs may take."""


class Operating(Verbs):
    """The verbs of operators, which both clients share."""

    # -- jobs -------------------------------------------------------------------------------------------------------
    @verb
    def requeue(self, job_id: str | int) -> Steps[str]:
        """Add a job like one that has ended; its id."""
        path = yield from self._path("jobs", job_id, "requeue")
        return str((yield from self._ask(ClientRequest("POST", path)))["id"])

    @verb
    def count_all(self, action: str, /, **filters: Any) -> Steps[int]:
        """How many jobs `cancel_all`, `retry_all` or `requeue_all` would be about; the action is cancel, retry or
        requeue."""
        path = yield from self._path("jobs", action)
        query = _filters(filters) | {"dry_run": "true"}
        found = yield from self._ask(ClientRequest("POST", path, query, repeatable=True, seconds=BULK_SECONDS))
        return int(found["found"])

    @verb
    def cancel_all(self, count: int, /, **filters: Any) -> Steps[int]:
        """Cancel the jobs that filters find, if they are no more than `count`; how many were. Filters are type, key,
        state, phase, code and since; and reason."""
        return (yield from self._all("cancel", count, filters))

    @verb
    def retry_all(self, count: int, /, **filters: Any) -> Steps[int]:
        """Run the jobs now that filters find and that wait for their time, if they are no more than `count`; how many
        there were."""
        return (yield from self._all("retry", count, filters))

    @verb
    def requeue_all(self, count: int, /, **filters: Any) -> Steps[int]:
        """Add a job like each that has ended and that filters find, if they are no more than `count`; how many were
        added. If a reply is lost, that is an error, and some jobs may have been added."""
        return (yield from self._all("requeue", count, filters))

    def _all(self, action: str, count: int, filters: Mapping[str, Any]) -> Steps[int]:
        path, query, changed = (yield from self._path("jobs", action)), _filters(filters), 0
        place = {"count": str(count)}
        while True:
            request = ClientRequest("POST", path, query | place, repeatable=action != "requeue", seconds=BULK_SECONDS)
            found = yield from self._ask(request)
            changed += int(found["changed"])
            if not found["next"]:
                return changed
            place = {"after": found["next"]}

    # -- cron schedules ---------------------------------------------------------------------------------------------
    @verb
    def crons(self) -> Steps[list[Seen]]:
        """The tenant's cron schedules."""
        return list((yield from self._get("cron"))["schedules"])

    @verb
    def add_cron(self, /, type: str, expression: str, **options: Any) -> Steps[Seen]:
        """Add a cron schedule. Options are name, tz, data or payload, missed, overlap, priority, timeout, paused."""
        path = yield from self._path("cron")
        return (yield from self._say("POST", path, {"type": type, "expression": expression, **options}))

    @verb
    def change_cron(self, /, name: str, **options: Any) -> Steps[Seen]:
        """Change a cron schedule: paused=True lets it add nothing. What is not given stays as it is."""
        return (yield from self._say("PATCH", (yield from self._path("cron", name)), options, repeatable=True))

    @verb
    def remove_cron(self, name: str) -> Steps[None]:
        yield from self._ask(ClientRequest("DELETE", (yield from self._path("cron", name))))

    @verb
    def run_cron(self, name: str) -> Steps[str]:
        """Add one job of a cron schedule now; its id."""
        path = yield from self._path("cron", name, "run")
        return str((yield from self._ask(ClientRequest("POST", path)))["id"])

    # -- tenants and tokens: these take an operator's token ---------------------------------------------------------
    @verb
    def whoami(self) -> Steps[Seen]:
        """Whose token this is, and which roles it has."""
        return (yield from self._ask(ClientRequest("GET", "/v1/whoami", repeatable=True)))

    @verb
    def tenants(self) -> Steps[list[Seen]]:
        return list((yield from self._ask(ClientRequest("GET", "/v1/tenants", repeatable=True)))["tenants"])

    @verb
    def add_tenant(self, /, tenant: str, *, again: bool = False, **amounts: int) -> Steps[Seen]:
        """Add a tenant, as yet without a token. Amounts are weight, waiting, running, bytes, rate, kept, requests."""
        return (yield from self._say("POST", "/v1/tenants", {"tenant": tenant, "again": again, **amounts}))

    @verb
    def change_tenant(self, /, tenant: str, **amounts: int) -> Steps[Seen]:
        """Change what a tenant may have; what is not given stays as it is."""
        return (yield from self._say("PATCH", _at("tenants", tenant), amounts, repeatable=True))

    @verb
    def remove_tenant(self, tenant: str) -> Steps[None]:
        yield from self._ask(ClientRequest("DELETE", _at("tenants", tenant)))

    @verb
    def tokens(self, tenant: str = "") -> Steps[list[Seen]]:
        """The tokens of a tenant, or all there are."""
        request = ClientRequest("GET", "/v1/tokens", as_query({"tenant": tenant}), repeatable=True)
        return list((yield from self._ask(request))["tokens"])

    @verb
    def create_token(
        self, *roles: str, tenant: str | None = None, name: str = "", expires: datetime | None = None
    ) -> Steps[Seen]:
        """Make a token: its `token` is shown this once. Without a tenant it is an operator's."""
        said = {"roles": roles, "tenant": tenant, "name": name, "expires": expires and expires.isoformat()}
        return (yield from self._say("POST", "/v1/tokens", said))

    @verb
    def rotate_token(self, token_id: str, overlap: float | None = None) -> Steps[Seen]:
        """Make a token that may do the same; the old one is good for `overlap` seconds more, a day if that is not
        given."""
        said = {} if overlap is None else {"overlap": overlap}
        return (yield from self._say("POST", f"{_at('tokens', token_id)}/rotate", said))

    @verb
    def revoke_token(self, token_id: str) -> Steps[None]:
        yield from self._ask(ClientRequest("DELETE", _at("tokens", token_id)))

    @verb
    def audit(self, after: int = 0, limit: int = 100) -> Steps[list[Seen]]:
        """Who changed what, the newest first; `after` the number of the last entry of the page before."""
        query = as_query({"after": after, "limit": limit})
        return list((yield from self._ask(ClientRequest("GET", "/v1/audit", query, repeatable=True)))["entries"])

    def _say(self, method: str, path: str, said: Mapping[str, Any], *, repeatable: bool = False) -> Steps[Seen]:
        body = json.dumps(said).encode()
        return (yield from self._ask(ClientRequest(method, path, headers=JSON, body=body, repeatable=repeatable)))


def _filters(given: Mapping[str, Any]) -> dict[str, str]:
    found = dict(given)
    if isinstance(since := found.get("since"), datetime):
        if since.tzinfo is None:
            raise Invalid("since has no time zone; add one")
        found["since"] = since.isoformat()
    return as_query(found)


def _at(*parts: str) -> str:
    return "/".join(["", "v1", *(quote(part, safe="") for part in parts)])
