"""Tests of ``harness/campaign``."""
