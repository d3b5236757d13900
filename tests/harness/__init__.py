"""The project's own tests, mirroring the five folders."""
