"""A Mosquitto server for the tests: the one named, the one that runs here, or one started from Debian's package."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.brokers.server import Server, shared_url

PASSWORD: Final = "open-sesame"
"""Of the user `shop`, on a server made with `rights`: there nobody else gets in."""


@cache
def mqtt_url() -> str:
    return shared_url(OwnMosquitto, "HIPQ_TEST_MQTT_URL", 1883)


class OwnMosquitto(Server):
    """It saves its sessions when it is told to end, and every so often, but not before it confirms a message: so `stop`
    tells it to end, and what a real crash of it loses is not hipq's to keep.

    `rights`: who may do what; `options`: more lines for its configuration.
    """

    name = "Mosquitto"
    url_form = "mqtt://127.0.0.1:{port}"
    stop_signal = signal.SIGTERM

    def __init__(self, *, rights: str = "", options: str = "") -> None:
        found = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        if found is None:
            pytest.skip("no Mosquitto server here: install Debian's mosquitto, or set HIPQ_TEST_MQTT_URL")
        self._program = found
        self._options = options
        self._rights = rights
        super().__init__()
        self.folder.chmod(0o777)  # started as root it goes on as another user

    def command(self, port: int) -> Sequence[str | Path]:
        lines = [
            f"listener {port} 127.0.0.1",
            "persistence true",
            f"persistence_location {self.folder}/",
            "autosave_interval 60",
            "max_queued_messages 0",  # else it throws away what a session has not fetched, from the 1,000th on
            "max_inflight_messages 1000",
            "log_dest stderr",
            *(self._guarded() if self._rights else ["allow_anonymous true"]),
            self._options,
        ]
        path = self.folder / "mosquitto.conf"
        path.write_text("\n".join(lines) + "\n")
        return [self._program, "-c", path]

    def _guarded(self) -> Sequence[str]:
        passwords, rights = self.folder / "passwords", self.folder / "rights"
        made = ["mosquitto_passwd", "-b", "-c", str(passwords), "shop", PASSWORD]
        subprocess.run(made, check=True, capture_output=True)
        passwords.chmod(0o644)
        rights.write_text(self._rights)
        return ["allow_anonymous false", f"password_file {passwords}", f"acl_file {rights}"]
