"""Certification of third-party state backends: properties by clause, against a process of the candidate's own."""
