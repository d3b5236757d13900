"""A job that is stopped with a savepoint, and one that goes on from it."""
