"""Campaigns: many trials under a budget, shrinking, replay, run directories."""
