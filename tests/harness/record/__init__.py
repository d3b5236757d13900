"""Tests of ``harness/record``."""
