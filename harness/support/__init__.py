"""Helpers that every layer of the harness may use. They use no other layer."""
