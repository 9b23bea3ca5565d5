"""`hipq`, the program. Whoever presses ^C while it is still being read in hears nothing of where it was."""

from __future__ import annotations

import os


def main() -> None:
    try:
        from hipq.cli.main import main as begin
    except KeyboardInterrupt:
        os._exit(130)  # what was read in halfway would complain at an ordinary exit
    begin()


if __name__ == "__main__":
    main()
