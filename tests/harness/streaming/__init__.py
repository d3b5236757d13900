"""Tests of ``harness/streaming``."""
