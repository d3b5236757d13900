"""Tests of ``harness/certify/storage``."""
