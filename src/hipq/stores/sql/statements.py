"""The SQL of a store: a file a statement, with the tables of its queue and the names of states filled in.

All stores share the files in `hipq/stores/sql/sql`; a file of the same name in a store's own `sql/` replaces the shared
one. In a file,

- `:name` is a value that the statement is run with;
- `{live}`, `{final}` and `{number}` are the tables and the number of the queue that the statement is for;
- `{READY}`, `{MATCHED}` and the like are constants of `hipq.job.states` and `hipq.job.answer`, and `{TODO}`,
  `{CHILD}` and `{UNUSED}` are conditions that are made of some of them;
- `{columns}`, `{kept}`, `{by_early}` and `{strategy}` are the parts that a store gives once for all files: the columns
  of a job with its payload, from a table called l; the columns of an answer; the hint, if the database needs one, to
  use the index _early; and the name of the registered retry strategy that a job in phase deciding is to ask, or '';
- `{in ids}` and `{in text states}` test whether a number, or a text, is in the list that is the value of that name,
  `{contains}` names the function that finds one text in another, and `{parent}` is the parent of a child: a store's
  `spell` writes these as its database does;
- any other word in braces is a part that the caller of `of` or `text` gives: SQL, or the name of another file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Final, Generic, TypeVar

from hipq.errors import NotFound
from hipq.job import answer, states
from hipq.job.model import COLUMNS
from hipq.stores import migrations
from hipq.stores.filters import CHILD
from hipq.stores.values import QueueTables

T = TypeVar("T")
_PAYLOAD: Final = "coalesce(nullif(job_data, ''), (SELECT data FROM hipq_payloads p WHERE p.id = l.id), '') AS job_data"
WITH_PAYLOAD: Final = ", ".join(_PAYLOAD if name == "job_data" else name for name in COLUMNS)
"""The columns of a row, from a table called l: a large payload comes from its side table in the same statement."""
_WORDS: Final = {
    f"{{{name}}}": f"'{value}'"
    for module in (states, answer)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
} | {
    "{TODO}": f"phase IN ('{states.DECIDING}', '{states.ANSWERED}', '{states.CANCELLING}') AND owner = 0",
    "{CHILD}": CHILD,
    "{UNUSED}": f"state IN ({', '.join(map(repr, answer.UNUSED))})",
}
"""What files write as `{READY}` and the like. `{TODO}`: a job waits for other code than its handler (index _todo).
`{CHILD}`: the handler of another job has added it (indexes _parent). `{UNUSED}`: no job has used an answer (index
hipq_answers_unused)."""


def read(package: str) -> dict[str, str]:
    """The files of a package, by name, without the comments at their beginning."""
    return {
        file.name.removesuffix(".sql"): re.sub(r"^--.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE).strip()
        for file in files(package).joinpath("sql").iterdir()
        if file.name.endswith(".sql")
    }


@cache
def texts(package: str, **parts: str) -> Mapping[str, str]:
    """What all stores of a kind share: read once, since a process may open many."""
    found = read("hipq.stores.sql") | read(package)
    for name, text in found.items():
        for part, value in [*((f"{{{part}}}", value) for part, value in parts.items()), *_WORDS.items()]:
            text = text.replace(part, value)
        found[name] = text
    return found


class Statements(Generic[T]):
    """Statements as a database takes them. `package` has the store's own files. `look` reads the registry of queues,
    since another process may have registered one. `spell` brings a text to the form that the database takes. `parts`
    are the same in all files: `columns`, `kept`, `by_early` and `strategy`."""

    def __init__(
        self, package: str, look: Callable[[], Iterable[QueueTables]], spell: Callable[[str], T], **parts: str
    ) -> None:
        self.files = texts(package, **parts)
        self.columns = parts["columns"]
        """The columns of a job with its payload, from a table called l."""
        self._look = look
        self.spell = spell
        self._queues: dict[int, QueueTables] = {}
        self._cache: dict[tuple[str | int, ...], T] = {}

    def of(self, name: str, queue: int = 0, **parts: str) -> T:
        """The SQL of a file, for one queue if it is about one. A part of it is text, or the name of another file."""
        key: tuple[str | int, ...] = (name, queue, *parts.values())
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self.spell(self.text(name, queue, **parts))
        return found

    def text(self, name: str, queue: int = 0, **parts: str) -> str:
        """The SQL of a file before it is spelled for the database."""
        text = self.files[name]
        for part, value in parts.items():
            text = text.replace(f"{{{part}}}", self.files.get(value, value))
        return migrations.tables(text, self.tables(queue)) if queue else text

    # -- the registered queues, as far as this store knows them -----------------------------------------------------
    def learn(self, queues: Iterable[QueueTables]) -> None:
        self._queues.update((queue.number, queue) for queue in queues)

    def forget(self, queue: int) -> None:
        self._queues.pop(queue, None)
        self._cache = {key: text for key, text in list(self._cache.items()) if key[1] != queue}

    def knows(self, queue: int) -> bool:
        if queue not in self._queues:
            self.learn(self._look())
        return queue in self._queues

    def tables(self, queue: int) -> QueueTables:
        if not self.knows(queue):
            raise NotFound(f"no queue has the number {queue}")
        return self._queues[queue]

    def table(self, queue: int) -> str:
        return self.tables(queue).table
