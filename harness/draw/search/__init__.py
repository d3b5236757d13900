"""Strategies of drawing: how the plan of the next trial is chosen."""
