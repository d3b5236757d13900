"""Planted bugs: small overrides at the runtime's seams, each a real bug of a real system (CER-2)."""

from barrier_tck.harness.reference.mutants.catalogue import MUTANTS, components_of
from barrier_tck.harness.reference.mutants.mutant import Mutant

__all__ = ["MUTANTS", "Mutant", "components_of"]
