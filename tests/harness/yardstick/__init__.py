"""Tests of ``harness/yardstick``."""
