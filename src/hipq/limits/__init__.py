"""What may start: limits on a queue, and how they are kept. Pure: no I/O, no clock, one policy a file."""
