"""Whether the environment asks for traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq.errors import Invalid, shown

if TYPE_CHECKING:
    from hipq.observe.traces import Traced


def trace_if(wanted: str, app: Traced) -> None:
    """Trace the jobs of this instance, if $HIPQ_TRACES, which is `wanted`, says so."""
    if wanted not in ("0", "1"):
        raise Invalid(f"HIPQ_TRACES is 1 or 0, not {shown(wanted)}")
    if wanted == "1":
        from hipq.observe.traces import trace  # it needs OpenTelemetry

        trace(app)
