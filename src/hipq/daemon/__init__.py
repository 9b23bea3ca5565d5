"""The daemon: jobs of many tenants over HTTP, their handlers in several languages."""
