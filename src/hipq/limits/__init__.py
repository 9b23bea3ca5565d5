"""What may start: the limits of a queue, one a file, and how a claim counts them. Pure: no I/O, no clock."""
