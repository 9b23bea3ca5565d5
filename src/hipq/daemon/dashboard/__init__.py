"""What the dashboard shows of a daemon, beside its queues and jobs: tenants, handlers, the journal."""
