"""For tests: a clock to turn by hand, and the contract suite every store runs."""
