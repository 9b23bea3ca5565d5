"""What goes wrong, in one sentence on standard error."""

from __future__ import annotations

from typing import Final

import click

from hipq.observe.logs import escaped

LIMIT: Final = 600


def complain(text: str, status: int, more: str = "") -> int:
    """Say it on one line, not too long, and hand back the exit status that goes with it."""
    text = escaped(" ".join(text.split()))
    click.echo(f"hipq: {text if len(text) <= LIMIT else text[:LIMIT] + '…'}{more}", err=True)
    return status
