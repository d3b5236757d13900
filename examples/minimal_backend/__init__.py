"""A complete state backend in one file; the guide explains it."""
