"""No models: hipq's tables are its own. But Django reports its migrations only to apps that have this module."""
