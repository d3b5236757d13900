"""Tests of ``harness/certify/backend``."""
