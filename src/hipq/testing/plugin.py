"""The fixtures pytest finds by itself once hipq is installed."""
