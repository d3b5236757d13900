"""Planted bugs: small overrides at the runtime's seams; most of them are real bugs of real systems (CER-2)."""
