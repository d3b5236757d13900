"""Tests of ``harness/oracle``."""
