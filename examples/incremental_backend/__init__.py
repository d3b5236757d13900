"""A state backend whose snapshots are incremental."""
