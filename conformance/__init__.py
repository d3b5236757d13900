"""The conformance suite: clauses as tests, the same bodies in every world."""
