"""`python -m tests.dashboard.pictures` takes the pictures of docs/dashboard.md and README.md anew."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.dashboard.looks import DARK, LIGHT, PHONE, put_on
from tests.dashboard.person import person

FOLDER: Final = Path(__file__).parents[2] / "docs/images"
MOST: Final = 150_000
"""Bytes of a picture."""


def take() -> None:
    shop = Path(tempfile.gettempdir(), "shop")  # pictures show this path
    shop.mkdir()
    try:
        with person("sqlite", shop) as ada:
            views = [
                ("overview", LIGHT, "/"),
                ("job", LIGHT, f"/jobs/{ada.shop.ids['order-1-0']}"),
                ("jobs", DARK, "/jobs?queue=orders"),
                ("phone", PHONE, "/"),
            ]
            for name, look, path in views:
                put_on(ada.browser, look)
                ada.go(path)
                picture = ada.browser.picture()
                assert len(picture) <= MOST, f"{name} has {len(picture):,} bytes"
                (FOLDER / f"dashboard-{name}.png").write_bytes(picture)
    finally:
        shutil.rmtree(shop)


if __name__ == "__main__":
    logging.disable()
    FOLDER.mkdir(exist_ok=True)
    take()
