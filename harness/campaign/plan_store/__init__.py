"""The store of plans: what campaigns keep for the next ones (decision 0082)."""
