"""The reference runtime: Flink-style asynchronous barrier snapshotting, written once for two worlds."""
