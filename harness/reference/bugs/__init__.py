"""Planted bugs, a file for each: the lines of the reference runtime that it changes, and the plan that shows it."""
