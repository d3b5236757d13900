"""Tests of ``harness/certify/spark_store``."""
