"""Injectors: carry out a fault on a structural target, prove that it fired, and say how it heals."""
