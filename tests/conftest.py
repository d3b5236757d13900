"""What all of the project's own tests share."""

from __future__ import annotations

from hypothesis import settings

# No example is timed, because the first one in a file may pay for imports, and machines are shared.
settings.register_profile("barrier-tck", deadline=None)
settings.load_profile("barrier-tck")
