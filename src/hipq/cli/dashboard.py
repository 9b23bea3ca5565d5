"""`hipq dashboard`: pages that show a database in a browser, for whoever has the URL that it prints."""

from __future__ import annotations

import getpass
import os
import threading
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from secrets import token_urlsafe
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from hipq.cli.commands import command, is_typed, lifeline_option
from hipq.cli.inputs import number_option
from hipq.cli.listening import LOOPBACK, address, bound, check_uvicorn, serve_until_told
from hipq.cli.show import say
from hipq.cli.target import AppCommand, Target, shown
from hipq.errors import Invalid
from hipq.observe import logs

TOKENS: Final = "HIPQ_DASHBOARD_TOKENS"
SECRET: Final = "HIPQ_DASHBOARD_SECRET"
PORT: Final = 4477


@command(
    "dashboard",
    "hipq dashboard shop:app",
    "hipq dashboard --db postgresql://ann@localhost/shop --role view --mask card,cvv",
    "hipq dashboard shop:app --public-url https://ops.example/hipq",
    cls=AppCommand,
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@number_option("--port", 0, 65_535, PORT, "0: any that is free.")
@click.option("--role", type=click.Choice(["view", "operate", "admin"]), default="admin", show_default=True,
              help="What whoever opens the URL may do.")  # fmt: skip
@click.option("--read-only", is_flag=True, help="Nobody changes anything.")
@click.option("--mask", default="", metavar="FIELDS",
              help="Fields whose values nobody sees, in data, results and answers: card,cvv.")  # fmt: skip
@click.option("--public-url", metavar="URL", help="Where a proxy that speaks HTTPS shows it.")
@click.option("--open", "opens", is_flag=True, help="Open it in a browser, too.")
@lifeline_option
def dashboard(
    target: Target, host: str, port: int, role: str, read_only: bool, mask: str, public_url: str | None, opens: bool,
    lifeline: int | None,
) -> None:  # fmt: skip
    """See an application or a database in a browser, and act on it, until SIGINT or SIGTERM.

    It prints a URL that logs in whoever has it. $HIPQ_DASHBOARD_TOKENS says who may log in instead, with which role:
    ann=admin:SECRET, bob=view:SECRET.
    """
    check_uvicorn("hipq dashboard", "dashboard")
    if find_spec("jinja2") is None:
        raise Invalid("hipq dashboard needs Jinja2: pip install 'hipq[dashboard]'")
    entrance = _entrance(host, role, public_url)
    from hipq.dashboard.application import asgi  # it loads asyncio and Jinja2

    apps = target.apps
    if not apps:
        raise Invalid("there are no queues in this database yet")
    masked = [name for name in (part.strip() for part in mask.split(",")) if name]
    application = asgi(apps, tokens=entrance.tokens, mask=masked, read_only=read_only)
    listening = bound(host, port)
    logs.configure("info", "text")
    url = entrance.url(address(listening))

    def ready() -> None:
        say({"url": url, "database": shown(apps[0].url)}, f"dashboard: {url}")
        if opens:  # a browser of the terminal returns when it is closed
            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()

    serve_until_told(_behind(application, public_url), listening, ready, lifeline)


class _Entrance(NamedTuple):
    public_url: str | None
    tokens: dict[str, tuple[str, str]] | None
    """None = those of the environment."""

    def url(self, listening: str) -> str:
        where = (self.public_url or listening).rstrip("/")
        for _, token in (self.tokens or {}).values():
            return f"{where}/login?token={token}"
        return f"{where}/"


def _entrance(host: str, role: str, public_url: str | None) -> _Entrance:
    if public_url is not None and (urlsplit(public_url).scheme != "https" or not urlsplit(public_url).hostname):
        raise Invalid(f"--public-url must be like https://ops.example/hipq, not {public_url!r:.80}")
    if os.environ.get(TOKENS):
        if is_typed("role"):
            raise Invalid(f"${TOKENS} says who has which role: leave out --role")
        return _Entrance(public_url, None)
    if host not in LOOPBACK and public_url is None:
        raise Invalid(
            f"on {host!r:.80} others can read what is sent, so the URL with its token is not enough: say who may log "
            f"in with ${TOKENS}, or with --public-url which proxy speaks HTTPS"
        )
    return _Entrance(public_url, {_user(): (role, token_urlsafe(24))})


def _user() -> str:
    """Whose name is in the audit log."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without users
        return "operator"


def _behind(application: Any, public_url: str | None) -> Callable[..., Any]:
    """The application as the proxy shows it, whether that takes the path of the URL away or leaves it."""
    if public_url is None:
        return application  # type: ignore[no-any-return]
    base = urlsplit(public_url).path.rstrip("/")

    async def proxied(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            inside = path == base or path.startswith(f"{base}/")
            scope = {**scope, "scheme": "https", "root_path": base, "path": path if inside else base + path}
        await application(scope, receive, send)

    return proxied
