"""How a dashboard is looked at: by day, by night, on a phone."""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.daemon.browser import Browser


class Look(NamedTuple):
    name: str
    scheme: str
    width: int
    height: int


LIGHT: Final = Look("light", "light", 1280, 800)
DARK: Final = Look("dark", "dark", 1280, 800)
PHONE: Final = Look("phone", "light", 390, 844)
LOOKS: Final = (LIGHT, DARK, PHONE)


def put_on(browser: Browser, look: Look) -> None:
    """Whatever is opened from now on is seen like this."""
    scheme = {"name": "prefers-color-scheme", "value": look.scheme}
    browser.ask("Emulation.setEmulatedMedia", features=[scheme])
    browser.ask("Emulation.setScrollbarsHidden", hidden=True)  # pictures of whole pages have no room for them
    browser.ask(
        "Emulation.setDeviceMetricsOverride", width=look.width, height=look.height, deviceScaleFactor=1,
        mobile=look is PHONE,
    )  # fmt: skip
