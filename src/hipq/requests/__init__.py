"""Job types without code: a declared request, sent by a transport, and the meaning of its reply."""
