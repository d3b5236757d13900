"""A module of a stranger who has not installed what it needs."""

from __future__ import annotations

import a_library_that_is_not_there  # type: ignore[import-not-found]

System = a_library_that_is_not_there.System
