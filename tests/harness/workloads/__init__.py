"""Tests of ``harness/workloads``."""
