"""No models: hipq's tables are its own. But Django tells only apps that have this module when it has migrated."""
