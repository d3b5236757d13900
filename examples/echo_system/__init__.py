"""A system under test that echoes records."""
