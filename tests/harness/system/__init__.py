"""Tests of ``harness/system``."""
