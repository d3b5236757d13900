"""Tests of ``harness/plan``."""
