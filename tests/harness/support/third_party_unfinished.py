"""A third party's module that imports a library which is not installed."""

from __future__ import annotations

import a_library_that_is_not_there  # type: ignore[import-not-found]

System = a_library_that_is_not_there.System
