"""The measurements of `hipq bench`. Loaded by that command only."""
