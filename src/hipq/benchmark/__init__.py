"""What `hipq bench` measures, and where. Loaded by that command only."""
