"""Tests of the reference implementation."""
