"""The harness: runs plans in a world, records what happened and judges it.

These are the names for third parties who test a system, bring a workload, a checker or a backend, or run a plan. Import
them from here, because the modules that define them may change. Other faults are in ``barrier_tck.faults.kinds``.

``__init__.pyi`` beside this file says which names there are; each is imported when it is first used, so that a command
that needs none of them starts fast.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
