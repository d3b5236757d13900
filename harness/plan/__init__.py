"""The trial plan: the only input of a trial, its bounds, and how it is read."""
