"""Message brokers for the tests: the one named, the one that runs here, or one started for them."""
