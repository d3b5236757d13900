"""A job in event time."""
