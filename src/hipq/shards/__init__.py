"""One instance over several databases: which shard has what, and how verbs find it."""
