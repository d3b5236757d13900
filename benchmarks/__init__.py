"""Benchmarks: each claims with numbers from one run, side by side where it compares."""
