"""Adapters: systems under test, behind one seam."""
