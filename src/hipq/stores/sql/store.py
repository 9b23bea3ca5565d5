"""All verbs that SQL stores share."""

from __future__ import annotations

from hipq.stores.sql.audit import AuditVerbs
from hipq.stores.sql.crons import CronVerbs
from hipq.stores.sql.maintenance import MaintenanceVerbs
from hipq.stores.sql.rules import RuleVerbs
from hipq.stores.sql.setup import SetupVerbs
from hipq.stores.sql.tenants import NoteVerbs, TenantVerbs
from hipq.stores.sql.turn import TurnVerbs


class SqlStore(SetupVerbs, MaintenanceVerbs, TurnVerbs, RuleVerbs, TenantVerbs, NoteVerbs, CronVerbs, AuditVerbs):
    """A store over a dialect."""
