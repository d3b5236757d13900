"""Certification of state backends in Python."""
