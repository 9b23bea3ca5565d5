"""What to do about errors that come from elsewhere and only say what is wrong."""

from __future__ import annotations

import re
from typing import Final

_ADVICE: Final = {
    r"password authentication failed|no password supplied": "check the user and the password in the URL",
    r'database "([^"]+)" does not exist': "make it first: createdb {}",
    r'role "([^"]+)" does not exist': "check the user in the URL",
    r"[Cc]onnection refused|No such file or directory.*socket": "is the server running there?",
    r"failed to resolve host|Name or service not known": "check the host in the URL",
    r"unable to open database file|cannot open .*: (?:No such|Permission)": "is its folder there, may you write to it?",
    r"attempt to write a readonly database": "check who may write to the file and its folder",
    r"file is not a database": "check the path: another program made this file",
}


def advised(text: str) -> str:
    """The sentence, and what to do, if that is known."""
    for pattern, advice in _ADVICE.items():
        if match := re.search(pattern, text):
            return f"{text.rstrip('.')}; {advice.format(*match.groups())}"
    return text
