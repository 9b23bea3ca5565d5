"""`hipq move`."""
