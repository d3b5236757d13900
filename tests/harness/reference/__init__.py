"""Tests of ``harness/reference``."""
