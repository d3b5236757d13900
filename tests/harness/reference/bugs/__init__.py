"""Tests of ``harness/reference/bugs``."""
