"""Tests of ``harness/support``."""
