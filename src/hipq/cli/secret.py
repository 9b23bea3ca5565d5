"""`hipq secret`: what a tenant's handlers have and nobody is shown; and the keys of the operator who keeps them."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING

import click

from hipq import files
from hipq.cli.at_daemon import daemon_options
from hipq.cli.audited import did
from hipq.cli.commands import asked, group
from hipq.cli.complain import note
from hipq.cli.show import print_table, say
from hipq.cli.target import daemon_database, daemon_db_option, shown
from hipq.errors import Invalid
from hipq.stores.open import open_store

if TYPE_CHECKING:
    from hipq.client import Client

VARIABLE = "HIPQ_SECRETS_KEY"
_MOST = 32_768
"""Bytes of a value."""
_KEY_FILE = click.option("--secrets-key-file", "file", metavar="FILE",
                         help=f"The file that has the keys; else ${VARIABLE} has them.")  # fmt: skip


@group(
    "secret",
    "hipq secret set BANK_KEY < bank.key",
    "hipq secret list",
    "hipq secret new-key --secrets-key-file hipq.keys",
)
def secret() -> None:
    """Set secrets that a tenant's handlers can read and nobody is shown. Operators make the keys here, too."""


@secret.command("set", "hipq secret set BANK_KEY < bank.key")
@click.argument("name", metavar="NAME")
@click.option(
    "--file", "source", type=click.File("rb"), help="The file that has the value; else standard input has it."
)
@daemon_options
def set_secret(client: Client, name: str, source: IO[bytes] | None) -> None:
    """Set a secret of a tenant. Handlers that name it have it as an environment variable. The value comes from a file
    or standard input, never from the command line, which others can read; one newline at its end is left out."""
    stream = source or sys.stdin.buffer
    if source is None and stream.isatty():
        note("type the value, then ctrl-D:")
    value = stream.read(_MOST + 2).removesuffix(b"\n")
    from hipq.sandbox.secrets import LEAST  # most commands need nothing of the sandbox's

    made = client.set_secret(name, value)
    if short := sum(0 < len(line.strip()) < LEAST for line in value.decode().splitlines()):
        note(f"{short} of its lines have fewer than {LEAST} characters, and are not masked where handlers print them "
             "among other words: a short password is safer with what is around it in one line")  # fmt: skip
    say(made, f"{name} is set")


@secret.command("list", "hipq secret list", "hipq secret list --json")
@daemon_options
def list_secrets(client: Client) -> None:
    """The names of a tenant's secrets, and when each was set."""
    found = client.secrets()
    say(found, lambda: print_table(("name", "made"), found, none="secrets"))


@secret.command("delete", "hipq secret delete BANK_KEY")
@click.argument("name", metavar="NAME")
@daemon_options
def delete(client: Client, name: str) -> None:
    """Delete a secret of a tenant. Jobs of handlers that name it are retried until they time out."""
    client.delete_secret(name)
    say({"deleted": name}, f"deleted {name}")


@secret.command("new-key", "hipq secret new-key --secrets-key-file hipq.keys", "hipq secret new-key")
@click.option("--secrets-key-file", "file", metavar="FILE", help="Put it first in this file, which is made if need be.")
def new(file: str | None) -> None:
    """Make a key for `hipq serve --secrets-key-file`. In a file, it stands first and encrypts from now on; keys that
    are there already stay, and decrypt. Then `hipq secret rekey`, and the old ones can go."""
    from hipq.daemon.handlers.keys import new_key

    key = new_key()
    if file is None:
        if not asked("json"):
            note(f"a key for ${VARIABLE}:")
        say({"key": key}, key)
        return
    _put_first(file, key)
    say({"file": file}, f"a new key stands first in {file}")


@secret.command(
    "rekey", "hipq secret rekey --secrets-key-file hipq.keys", "hipq secret rekey --db postgresql://ann@localhost/hipq"
)
@_KEY_FILE
@daemon_db_option
def rekey(file: str | None, db: str | None) -> None:
    """Encrypt all secrets in a database with the first of the keys. Those that they are encrypted with now must be
    among them."""
    from hipq.daemon.handlers.keys import SecretKeys  # most commands need nothing of the daemon's
    from hipq.daemon.handlers.secrets import TenantSecrets

    keys = SecretKeys(file or "")
    keys.check()
    keys.require()
    url = daemon_database(db)
    note(f"database: {shown(url)}")
    path = url.removeprefix("sqlite:///")
    if path != url and not os.path.exists(path):
        raise Invalid(f"there is no database file {os.path.abspath(path)}: --db says which one it is")
    store = open_store(url)
    click.get_current_context().call_on_close(store.close)
    changed = TenantSecrets(store, keys).rekey()
    did(store, encrypted=changed)
    say({"encrypted": changed}, f"encrypted {changed:,} anew")


def _put_first(file: str, key: str) -> None:
    """A new file takes the place of the old one: whoever reads has all keys, or all that were there before."""
    try:
        with open(file, encoding="utf-8") as opened:
            before = opened.read()
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from None
    new = f"{file}.new-{os.getpid()}"
    descriptor = files.make(new, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(f"{key}\n{before}")
            opened.flush()
            os.fsync(opened.fileno())
        os.rename(new, file)
    except BaseException:
        os.unlink(new)
        raise
