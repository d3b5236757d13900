"""Certification of third-party state backends: properties by clause, run against a candidate in a process of its own."""
