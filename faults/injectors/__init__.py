"""Injectors: carry out a fault on a structural target, and prove that it fired."""
