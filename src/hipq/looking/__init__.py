"""What people are shown of queues, limits, running jobs and engines, read once for `hipq top` and the dashboard.

All that is asked here is bounded: it costs the same however many jobs there are.
"""
