"""Planted bugs: small overrides at the runtime's seams, each a real bug of a real system (CER-2)."""

from harness.suts.mutants.plans import Mutant
from harness.suts.mutants.registry import MUTANTS, components_of

__all__ = ["MUTANTS", "Mutant", "components_of"]
