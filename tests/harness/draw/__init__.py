"""Tests of ``harness/draw``."""
