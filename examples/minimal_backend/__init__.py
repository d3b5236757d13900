"""A complete state backend in one file; ``docs/guide/state-backend.md`` explains it."""
