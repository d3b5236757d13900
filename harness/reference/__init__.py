"""Adapters that make the reference implementation a system under test, and its planted bugs."""
