"""Certification of third-party state backends: properties by clause, tested on a candidate in its own process."""
