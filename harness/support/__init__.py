"""Helpers that every floor of the harness may use. They use no other floor."""
