"""The seam to a system under test."""
