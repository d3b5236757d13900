"""A system under test with attempts and checkpoints: micro-batches."""
