"""The reference runtime on a Spark cluster, as a system under test."""
