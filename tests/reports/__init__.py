"""Tests of the reports, and the synthetic run directory they share."""
