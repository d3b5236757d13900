"""Tests of ``harness/certify``."""
