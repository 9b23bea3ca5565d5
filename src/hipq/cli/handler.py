"""`hipq handler`: what a tenant's jobs are run by: put from a folder to a daemon, tried out, compared, brought back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hipq.cli.at_daemon import daemon_options
from hipq.cli.commands import asked, group
from hipq.cli.complain import note
from hipq.cli.show import print_json, print_lines, print_table, say
from hipq.client.manifest import read_folder
from hipq.errors import Invalid, NotFound
from hipq.observe.logs import escaped

if TYPE_CHECKING:
    from hipq.client import Client

_folder_argument: Final = click.argument("folder", default=".", type=click.Path(file_okay=False))
_type_argument: Final = click.argument("type", metavar="TYPE")


@group(
    "handler",
    "hipq handler put charge/ --test charge/sample.json",
    "hipq handler diff charge",
    "hipq handler rollback charge",
)
def handler() -> None:
    """Deploy a tenant's handlers to a daemon over HTTP, test them, and look at them."""


@handler.command(
    "put", "hipq handler put charge/", "hipq handler put charge/ --test charge/sample.json --token-file token"
)
@_folder_argument
@click.option("--test", "sample", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True),
              help="Run it once with this payload before; it is put only if that ends well.")  # fmt: skip
@daemon_options
def put(client: Client, folder: str, sample: str | None) -> int:
    """Put the handler in FOLDER: a new version, which runs from now on. hipq-handler.toml in it says which job type it
    is for, and how it runs."""
    jobtype, parts = read_folder(folder)
    if sample is not None:
        tested = client.test_handler(jobtype, _payload(sample), **parts)
        if not _is_ok(tested):
            if asked("json"):
                print_json({"put": None, "test": tested})
            else:
                _print_test(tested)
                note(f"{jobtype} was not put: its test did not end well")
            return 1
    made = client.set_handler(jobtype, **parts)
    say(made, f"version {made['id']} of {jobtype} runs from now on")
    return 0


@handler.command("test", "hipq handler test charge/ --payload sample.json", "hipq handler test charge/ --json")
@_folder_argument
@click.option("--payload", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True),
              help="The payload; - is standard input. Without one it is empty.")  # fmt: skip
@daemon_options
def test(client: Client, folder: str, payload: str | None) -> int:
    """Run the handler in FOLDER once at the daemon, in the sandbox and with all that it would have there. It is not
    put, and what comes of it is shown and not kept. Exit 1 if it does not end well."""
    jobtype, parts = read_folder(folder)
    tested = client.test_handler(jobtype, _payload(payload), **parts)
    say(tested, lambda: _print_test(tested))
    return 0 if _is_ok(tested) else 1


@handler.command("list", "hipq handler list", "hipq handler list --json")
@daemon_options
def list_handlers(client: Client) -> None:
    """The handlers that there are, and since when each runs."""
    found = client.handlers()
    rows = [{"type": one["type"], "language": one["lang"], "version": one["id"], "put": one["dt"]} for one in found]
    say(found, lambda: print_table(("type", "language", "version", "put"), rows, none="handlers"))


@handler.command("show", "hipq handler show charge", "hipq handler show charge --version 5f3a9c01d2e4b6a8")
@_type_argument
@click.option("--version", metavar="VERSION", help="One that ran before; left out, the newest.")
@daemon_options
def show(client: Client, type: str, version: str | None) -> None:
    """One handler: how it runs, its code, and which versions are kept. Of its secrets the names."""
    from hipq.daemon.handlers.described import settings, written

    versions = client.handler_versions(type)
    found = _version(versions, version or versions[0]["id"])

    def printed() -> None:
        print_lines({"type": type, "version": found["id"], "put": found["dt"], **settings(found)})
        click.echo("\n".join(escaped(line) for line in written({**found, "policy": {}}).split("\n")))
        click.echo("versions")
        print_table(("id", "lang", "dt"), versions, "  ")

    say({**found, "versions": [{"id": one["id"], "dt": one["dt"]} for one in versions]}, printed)


@handler.command("diff", "hipq handler diff charge", "hipq handler diff charge 5f3a9c01d2e4b6a8",
                 "hipq handler diff --folder charge/")  # fmt: skip
@click.argument("type", metavar="[TYPE]", required=False)
@click.argument("old", metavar="[OLD]", required=False)
@click.argument("new", metavar="[NEW]", required=False)
@click.option("--folder", type=click.Path(file_okay=False), help="Compare what runs with the handler in this folder.")
@daemon_options
def diff(client: Client, type: str | None, old: str | None, new: str | None, folder: str | None) -> None:
    """How two versions differ: OLD and NEW, which are the version before and the newest if they are left out."""
    if (folder is None) == (type is None):
        raise click.UsageError("say TYPE, or --folder FOLDER")
    if folder is not None:
        jobtype, parts = read_folder(folder)
        before, after = _newest(client, jobtype), {"id": folder, **parts}
    else:
        jobtype = str(type)
        versions = client.handler_versions(jobtype)
        if old is None and len(versions) < 2:
            raise NotFound(f"there is one version of {jobtype}, and nothing to compare it with")
        before, after = _version(versions, old or versions[1]["id"]), _version(versions, new or versions[0]["id"])
    from hipq.daemon.handlers.described import difference, written  # most commands need nothing of the daemon's

    lines = difference(written(before), written(after), f"{jobtype} {before['id']}", f"{jobtype} {after['id']}")
    say({"type": jobtype, "old": before["id"], "new": after["id"], "diff": lines},
        lambda: click.echo("\n".join(escaped(line) for line in lines) or "they are the same"))  # fmt: skip


@handler.command("rollback", "hipq handler rollback charge", "hipq handler rollback charge 5f3a9c01d2e4b6a8")
@_type_argument
@click.argument("version", metavar="[VERSION]", required=False)
@daemon_options
def rollback(client: Client, type: str, version: str | None) -> None:
    """Let VERSION run again from now on; left out, the one before. Jobs that run finish on the version that they began
    with. Also brings back a handler that was deleted."""
    versions = client.handler_versions(type)
    if version is None:
        is_there = any(one["type"] == type for one in client.handlers())
        if is_there and len(versions) < 2:
            raise NotFound(f"there is one version of {type}, and none to go back to")
        version = str(versions[1 if is_there else 0]["id"])
    made = client.restore_handler(type, _version(versions, version)["id"])
    say(made, f"version {made['id']} of {type} runs from now on")


@group("signing", "hipq handler signing new", "hipq handler signing list")
def signing() -> None:
    """The keys that the calls of http handlers are signed with, as Standard Webhooks says."""


handler.add_command(signing)


@signing.command("list", "hipq handler signing list")
@daemon_options
def list_signing(client: Client) -> None:
    """The keys that sign, and when each was made. Never the key itself."""
    keys = client.signing_keys()
    say(keys, lambda: print_table(("id", "made"), keys, none="keys"))


@signing.command("new", "hipq handler signing new", "hipq handler signing new --json")
@daemon_options
def new_signing(client: Client) -> None:
    """Make a key, which is shown now and never again. It signs from now on, beside the one before; an older one is
    dropped."""
    made = client.new_signing_key()
    if not asked("json"):
        note(f"key {made['id']}, shown this once:")
    say(made, made["secret"])


@signing.command("drop", "hipq handler signing drop 5f3a9c01")
@click.argument("key", metavar="KEY")
@daemon_options
def drop_signing(client: Client, key: str) -> None:
    """Let a key sign nothing more."""
    client.drop_signing_key(key)
    say({"dropped": key}, f"dropped key {key}")


# -- what they share -------------------------------------------------------------------------------------------------
def _payload(file: str | None) -> bytes:
    if file is None:
        return b""
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Invalid(f"the payload {file} cannot be read: {error.strerror}") from None


def _newest(client: Client, type: str) -> dict[str, Any]:
    try:
        return client.get_handler(type)
    except NotFound:
        return {"id": "(none)"}


def _version(versions: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The one whose id begins so."""
    found = [one for one in versions if one["id"].startswith(wanted)]
    if len(found) != 1:
        there = ", ".join(one["id"] for one in versions)
        raise Invalid(f"there is no version {wanted!r:.60}: there are {there}")
    return found[0]


def _is_ok(tested: dict[str, Any]) -> bool:
    return 200 <= int(tested["status"]) < 300


def _print_test(tested: dict[str, Any]) -> None:
    data = tested.get("data", tested.get("data_base64"))
    print_lines({
        "status": tested["status"], "error": tested["error"] or None, "data": data or None,
        "seconds": tested["seconds"],
    })  # fmt: skip
    for job in tested["jobs"]:
        click.echo(escaped(f"asks for a job     {job['type']}: {job.get('payload', job.get('payload_base64'))}"))
    if tested["log"]:
        click.echo("log")
        for line in tested["log"].split("\n"):
            click.echo(f"  {escaped(line)}")
