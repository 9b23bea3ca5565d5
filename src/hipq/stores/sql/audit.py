"""The verbs of the audit log."""

from __future__ import annotations

from hipq.stores.audit import AuditEntry
from hipq.stores.sql.dialect import Dialect


class AuditVerbs(Dialect):
    def record(self, entry: AuditEntry) -> None:
        values = entry._asdict()
        del values["id"]
        with self._writing() as sql:
            sql.changed("audit_record", **values)

    def audit_log(self, before: int, limit: int) -> list[AuditEntry]:
        with self._reading() as sql:
            return [AuditEntry(*row) for row in sql.found("audit", before=before or 1 << 62, limit=limit)]

    def prune_audit_log(self, before: int, limit: int) -> int:
        with self._writing() as sql:
            return sql.changed("audit_prune", before=before, limit=limit)
