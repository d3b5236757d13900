"""What all of the project's own tests share."""

from __future__ import annotations

from hypothesis import settings

# No example is timed: the first one of a file may pay for imports, and these machines are shared.
settings.register_profile("barrier-tck", deadline=None)
settings.load_profile("barrier-tck")
