"""`hipq migrate`: bring a database to this program's schema. Opening a SQLite file does that; a server wants this."""

from __future__ import annotations

from hipq.app import Hipq
from hipq.cli.commands import command
from hipq.cli.show import say
from hipq.cli.target import AppCommand, Target, announced


@command("migrate", "hipq migrate shop:app", "hipq migrate --db postgresql://ann@localhost/shop", cls=AppCommand)
def migrate(target: Target) -> None:
    """Create or update hipq's tables: run this once, and after each upgrade. SQLite does not need it: programs that
    open the file do so."""
    applied = announced(target.program if target.app else Hipq("migrate", target.url)).migrate()
    text = "\n".join(f"applied {name}" for name in applied) or "the schema is up to date"
    say({"applied": applied}, text)
