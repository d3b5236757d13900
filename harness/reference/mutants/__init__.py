"""Planted bugs: small overrides at the runtime's seams, each a real bug of a real system (CER-2)."""
