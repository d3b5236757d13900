"""Tests of ``harness/cluster``."""
