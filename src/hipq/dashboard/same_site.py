"""Whether a request comes from a page of the dashboard itself: by what its form sends, and by what browsers say."""

from __future__ import annotations

import hmac
from typing import Final

from hipq.dashboard.visit import Refused, Visit

_OURS: Final = ("same-origin", "none")
"""What Sec-Fetch-Site says of a request from a page of ours, and of one that no page made."""


def check_change(visit: Visit) -> None:
    """Refused, if a page of another site may be behind a request that changes something."""
    if visit.by_program:
        return
    if not _is_ours(visit):
        raise Refused(403, "this form came from another site: nothing was done")
    sent = (visit.sent("csrf"), visit.headers.get("x-csrf", ""))
    if not visit.csrf or not any(hmac.compare_digest(one.encode(), visit.csrf.encode()) for one in sent):
        raise Refused(403, "this form is too old, or not one of yours: nothing was done; load the page again")


def is_own_visit(visit: Visit) -> bool:
    """Whether the visitor came by itself, or from a page here, and not by a link on another site."""
    return visit.headers.get("sec-fetch-site", "none") in _OURS


def _is_ours(visit: Visit) -> bool:
    said = visit.headers.get("sec-fetch-site")
    if said is not None:
        return said in _OURS
    origin = visit.headers.get("origin")  # what older browsers say, and all by plain HTTP
    return origin is None or origin.partition("://")[2].lower() == visit.headers.get("host", "").lower() != ""
