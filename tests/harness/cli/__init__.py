"""Tests of ``harness/cli``."""
