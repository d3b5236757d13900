"""Makes `synthetic_run` importable from the tests beside it, whatever pytest's import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
