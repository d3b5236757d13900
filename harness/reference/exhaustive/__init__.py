"""Complete searches of small scopes: every interleaving that differs, in the simulated world."""
