"""All checkers of the suite, as they are found: every module in ``checkers`` defines one."""

from __future__ import annotations

import inspect
import pkgutil
from functools import lru_cache
from importlib import import_module

from barrier_tck.harness.oracle import checkers
from barrier_tck.harness.oracle.standard_checker import StandardChecker
from barrier_tck.harness.support.errors import InternalError


@lru_cache(maxsize=1)
def standard_checkers() -> tuple[type[StandardChecker], ...]:
    """Return the checkers in the order in which their findings stand in records."""
    names = sorted(module.name for module in pkgutil.iter_modules(checkers.__path__))
    return tuple(sorted(map(_checker_in, names), key=lambda checker: (checker.rank, checker.name)))


def _checker_in(module_name: str) -> type[StandardChecker]:
    """Return the checker that a module defines; raises InternalError unless it is one, named for the module."""
    module = import_module(f"{checkers.__name__}.{module_name}")
    found = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, StandardChecker)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    if [checker.name.replace("-", "_") for checker in found] != [module_name]:
        raise InternalError(
            f"{module.__name__} must define one checker, with the name {module_name.replace('_', '-')!r}; it defines "
            f"{', '.join(repr(checker.name) for checker in found) or 'none'}"
        )
    return found[0]
