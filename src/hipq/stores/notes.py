"""Reading one note."""

from __future__ import annotations

from hipq.stores.protocols import NoteStore


def note(store: NoteStore, kind: str, name: str) -> str:
    """The note of this kind and name; "" if there is none."""
    return store.notes(kind, name, exact=True).get(name, "")
