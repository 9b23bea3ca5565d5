"""The demo's database file: in a folder that was named, or in a new one among the temporary files.

It stays, so that it can be looked at. What earlier runs left among the temporary files is removed after a day.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

from hipq.errors import Invalid

FILE: Final = "demo.db"
_PREFIX: Final = "hipq-demo-"
_FILES: Final = {FILE, *(f"{FILE}-{kind}" for kind in ("wal", "shm", "hipq", "journal"))}
"""All files that a run creates. A folder with other files in it is somebody's own."""
_DAY: Final = 86_400


def chosen_file(keep: str | None) -> Path:
    """The database file to create."""
    if keep is None:
        _remove_old(Path(tempfile.gettempdir()))
    try:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX) if keep is None else keep).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        taken = (folder / FILE).exists()
    except (OSError, ValueError) as error:
        where = "among the temporary files" if keep is None else f"{keep!r:.200}"
        raise Invalid(f"cannot make a folder {where}: {error}; name another one with --keep") from None
    if taken:
        raise Invalid(f"there is a {FILE} in {folder} already: name another folder, or remove it")
    return folder / FILE


def _remove_old(temporary: Path) -> None:
    for folder in temporary.glob(f"{_PREFIX}*"):
        try:
            about = folder.lstat()
            old = time.time() - about.st_mtime > _DAY and about.st_uid == os.getuid()
            if old and not folder.is_symlink() and set(os.listdir(folder)) <= _FILES:
                shutil.rmtree(folder)
        except OSError:
            continue  # somebody else's, or just removed by another run
