"""Job types without code: a request that is declared, sent by a transport, and what its reply means."""
