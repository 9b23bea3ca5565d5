"""How MariaDB runs the statements that all SQL stores share.

A file may hold several statements, of which one finds rows: there is no UPDATE that gives any back. Lists of rows are
one JSON parameter, read by JSON_TABLE. Where a statement is to be asked for several things and has to stop early at
each, it is written once for each of them, joined by UNION ALL: a derived table cannot be told of the row it is for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from hipq.errors import StoreRefused
from hipq.job.answer import KEPT
from hipq.stores.sql.activity import PARTS
from hipq.stores.sql.dialect import Read, Sql
from hipq.stores.sql.insert import INSERTED
from hipq.stores.sql.settle import FINISHED, MOVED
from hipq.stores.sql.statements import WITH_PAYLOAD, Statements
from hipq.stores.values import QueueTables

T = TypeVar("T")
Text = tuple[str, ...]
"""The statements of a file."""
_AT_ONCE: Final = 200
"""SELECTs that one statement joins."""
_LENGTHS: Final = {
    "tenant": 64, "lane": 300, "job_type": 200, "job_key": 500, "wait_key": 500, "state": 20, "phase": 20, "code": 20,
    "hash": 200, "name": 500,
}  # fmt: skip
_TEXTS: Final = frozenset(
    (
        *_LENGTHS,
        *["rank", "job_data", "time_windows", "meta", "wait", "error", "result", "history", "message", "definition"],
    )
)
_NUMBERS: Final = range(-(1 << 63), 1 << 63)
_SKIPPING: Final = "/*M! SET STATEMENT use_stat_tables = 'preferably_for_queries' FOR */"
"""What begins a statement that skips through an index. It goes by what ANALYZE has noted in the migration: MariaDB does
not skip where it believes that each entry is another group."""


def _rows(*names: str, by_name: bool = False) -> str:
    """The rows of a JSON parameter, as a table with these columns."""
    columns = []
    for n, name in enumerate(names):
        kind = "DOUBLE" if name in ("timeout", "fraction") else "BIGINT"
        if name in _TEXTS:
            kind = f"VARCHAR({_LENGTHS[name] + 1})" if name in _LENGTHS else "LONGTEXT"
            kind += " CHARACTER SET utf8mb4 COLLATE {bin}"
        columns.append(f"{name} {kind} PATH '$.{name}'" if by_name else f"{name} {kind} PATH '$[{n}]'")
    return f"JSON_TABLE(:rows, '$[*]' COLUMNS ({', '.join(columns)}))"


_KEY: Final = ("position", "tenant", "job_type", "job_key")
_PARTS: Final = {
    "key_rows": _rows(*_KEY, by_name=True),
    "since_rows": _rows(*_KEY, "since", "hash", by_name=True),
    "new_rows": _rows(*INSERTED),
    "finished_rows": _rows(*FINISHED),
    "moved_rows": _rows(*MOVED),
    "report_rows": _rows("id", "token", "attempt", "fraction", "message", by_name=True),
    "schedule_rows": _rows("name", "job_type", "definition", "since", "last", "next", "version"),
    "skipping": _SKIPPING,
    "windowed": "IF(char_length(:windows) > 64, sha2(:windows, 256), :windows)",
}  # fmt: skip


def statements(look: Callable[[], Iterable[QueueTables]], spell: Callable[[str], Text]) -> Statements[Text]:
    return Statements(
        "hipq.stores.mariadb", look, spell, columns=WITH_PAYLOAD, kept=", ".join(KEPT), by_early="", strategy="todo",
        **_PARTS, **PARTS,
    )  # fmt: skip


def spelled(text: str, collation: str, has_returning: bool = True) -> Text:
    """As the driver takes it. `rank` is a word of MySQL's."""
    text = text.replace("{contains}", "instr").replace("{parent}", "child_of").replace("{bin}", collation)
    text = re.sub(r"\{returning ([\w, ]+)\}", r" RETURNING \1" if has_returning else "", text)
    text = re.sub(r"\{in (?:text )?(\w+)\}", r"IN :\1", text.replace("AS BIGINT)", "AS SIGNED)").replace("%", "%%"))
    text = re.sub(r"(?<![:\w`'])((?:\w+\.)?)rank\b(?!['`])", r"\1`rank`", text)
    return tuple(re.sub(r"(?<![:\w]):([a-z]\w*)", r"%(\1)s", one) for one in text.split(";\n"))


def some_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """A list may be empty: then nothing is in it."""
    return {name: one or [None] if isinstance(one, list) else one for name, one in values.items()}


def in_json(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as one parameter, checked: JSON_TABLE would make the largest number there is of one that is too large."""
    kept = list(rows)
    for row in kept:
        check(row)
    return msgspec.json.encode(kept).decode()


def check(row: Iterable[Any]) -> None:
    for value in row:
        if type(value) is str:
            if "\x00" in value:
                raise StoreRefused("a text contains a NUL character, which PostgreSQL cannot store")
        elif type(value) is int and value not in _NUMBERS:
            raise StoreRefused(f"MariaDB will not store this: {value} does not fit into 64 bits")


class MariaSql(Sql):
    def ask(self, query: Text, values: Mapping[str, Any]) -> tuple[list[Any], int]:
        """What the statements find, and how many rows the last one that finds none has changed."""
        found: list[Any] = []
        count, values = 0, given(values)
        for one in query:
            cursor = self.execute(one, values)
            if cursor.description:
                found = list(cursor.fetchall())
            else:
                count = cursor.rowcount
        return found, count

    def execute(self, query: str, values: Mapping[str, Any]) -> Any:
        return self.conn.run(query, values)

    def run(self, query: Text, values: Mapping[str, Any], *, once: bool = False) -> list[Any]:  # noqa: ARG002
        return self.ask(query, values)[0]

    def do(self, query: Text, values: Mapping[str, Any], *, once: bool = False) -> int:  # noqa: ARG002
        return self.ask(query, values)[1]

    def read(self, kind: type[Read], query: Text, values: Mapping[str, Any], *, once: bool = False) -> list[Read]:  # noqa: ARG002
        return [kind(*row) for row in self.run(query, values)]

    def each(self, asked: Iterable[tuple[str, int, Mapping[str, Any]]]) -> list[Any]:
        """What statements find that are joined: the file of each, its queue and its values."""
        return self.joined((self.statements.of(name, queue), values) for name, queue, values in asked)

    def joined(self, asked: Iterable[tuple[Text, Mapping[str, Any]]]) -> list[Any]:
        found: list[Any] = []
        for some in some_of(asked, _AT_ONCE):
            values: dict[str, Any] = {}
            texts = []
            for n, ((text,), each) in enumerate(some):
                text = text.removeprefix(_SKIPPING) if n else text
                texts.append(re.sub(r"%\((\w+)\)s", rf"%(\1_{n})s", text))
                values |= {f"{key}_{n}": value for key, value in each.items()}
            found += self.execute(" UNION ALL ".join(texts), given(values)).fetchall()
        return found

    def of_each(self, name: str, queues: Sequence[int]) -> list[Text]:
        parts = [f"({self.statements.of(name, queue)[0]})" for queue in queues]
        return [(" UNION ALL ".join(some),) for some in some_of(parts, _AT_ONCE)]
