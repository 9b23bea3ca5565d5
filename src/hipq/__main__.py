"""`python -m hipq`: the command line."""

from __future__ import annotations

from hipq.cli.command import main

main()
