"""The project's own tests; they mirror the five folders."""
