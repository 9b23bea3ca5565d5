"""`python -m hipq`: the command line."""

from __future__ import annotations

from hipq.cli.main import main

main()
