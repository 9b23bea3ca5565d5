"""The verbs of the audit log."""

from __future__ import annotations

from hipq.stores.audit import KEPT, PRUNED, AuditEntry
from hipq.stores.sql.dialect import Dialect


class AuditVerbs(Dialect):
    def record(self, entry: AuditEntry) -> None:
        values = entry._asdict()
        del values["id"]
        with self._writing() as sql:
            sql.changed("audit_record", **values)
        with self._writing() as sql:  # after the entry is stored: that it must be, whatever becomes of older ones
            sql.changed("audit_prune", before=entry.at - KEPT, limit=PRUNED)

    def audit_log(self, before: int, limit: int) -> list[AuditEntry]:
        with self._reading() as sql:
            return [AuditEntry(*row) for row in sql.found("audit", before=before or 1 << 62, limit=limit)]
