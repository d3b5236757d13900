"""Campaigns: many trials within a budget, shrinking, and replay."""
