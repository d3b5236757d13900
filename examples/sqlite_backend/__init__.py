"""A state backend that keeps state in SQLite."""
