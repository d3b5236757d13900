"""Tests of ``harness/trial``."""
