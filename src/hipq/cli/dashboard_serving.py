"""What `hipq dashboard` and `hipq waiter dashboard` share: their options, who may come in, and how pages are served."""

from __future__ import annotations

import os
import threading
import webbrowser
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from hipq.cli.audited import user
from hipq.cli.commands import is_typed, together
from hipq.cli.inputs import number_option
from hipq.cli.listening import LOOPBACK, address, bound, check_uvicorn, serve_until_told
from hipq.cli.show import say
from hipq.cli.target import shown
from hipq.errors import Invalid
from hipq.observe import logs

if TYPE_CHECKING:
    from hipq.app import Hipq
    from hipq.waiter import Waiter

TOKENS: Final = "HIPQ_DASHBOARD_TOKENS"
SECRET: Final = "HIPQ_DASHBOARD_SECRET"
PORT: Final = 4477


class DashboardOptions(NamedTuple):
    host: str
    port: int
    role: str
    read_only: bool
    mask: str
    public_url: str | None
    opens: bool

    def check(self) -> _Entrance:
        """Before anything is opened: what is missing, or is not safe, is said at once."""
        name = click.get_current_context().command_path
        check_uvicorn(name, "dashboard")
        if find_spec("jinja2") is None:
            raise Invalid(f"{name} needs Jinja2: pip install 'hipq[dashboard]'")
        return _entrance(self.host, self.role, self.public_url)


_options = together(
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    number_option("--port", 0, 65_535, PORT, "0: any that is free."),
    click.option("--role", type=click.Choice(["view", "operate", "admin"]), default="admin", show_default=True,
                 help="What whoever opens the URL may do."),
    click.option("--read-only", is_flag=True, help="Nobody changes anything."),
    click.option("--mask", default="", metavar="FIELDS",
                 help="Fields whose values nobody sees, in data, results, answers and messages: card,cvv."),
    click.option("--public-url", metavar="URL", help="Where a proxy that speaks HTTPS shows it."),
    click.option("--open", "opens", is_flag=True, help="Open it in a browser, too."),
)  # fmt: skip


def dashboard_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """These options; the command gets them as `options`."""

    @wraps(command)
    def gathered(**given: Any) -> Any:
        options = DashboardOptions(**{name: given.pop(name) for name in DashboardOptions._fields})
        return command(**given, options=options)

    return _options(gathered)


def serve(options: DashboardOptions, apps: Sequence[Hipq], waiter: Waiter | None, lifeline: int | None) -> None:
    """Show these instances, the waiter or both, until SIGINT or SIGTERM."""
    from hipq.dashboard.application import asgi  # it loads asyncio and Jinja2

    entrance = options.check()
    masked = [name for name in (part.strip() for part in options.mask.split(",")) if name]
    application = asgi(apps, tokens=entrance.tokens, mask=masked, read_only=options.read_only, waiter=waiter)
    listening = bound(options.host, options.port)
    logs.configure("info", "text")
    url = entrance.url(address(listening))
    about = {"database": shown(apps[0].url)} if apps else {"queues": list(waiter.queues if waiter else ())}

    def ready() -> None:
        say({"url": url, **about}, f"dashboard: {url}")
        if options.opens:  # a browser of the terminal returns when it is closed
            threading.Thread(target=webbrowser.open, args=[url], daemon=True).start()

    serve_until_told(_behind(application, options.public_url), listening, ready, lifeline)


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
    return _Entrance(public_url, {user(): (role, token_urlsafe(24))})


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
