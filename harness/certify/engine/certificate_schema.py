"""The JSON schema of ``certificate.json``, a draft, made from the classes that write it.

python -m barrier_tck.harness.certify.engine.certificate_schema > docs/certificate.schema.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from barrier_tck.harness.certify.engine.certificate import CERTIFICATE_VERSION, Certificate

ADDRESS = "https://github.com/barrier-tck/barrier-tck/blob/main/docs/certificate.schema.json"


def schema() -> dict[str, Any]:
    """Return the schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ADDRESS,
        "$comment": f"A draft, of certificates of version {CERTIFICATE_VERSION}. Fields may be added.",
        **msgspec.json.schema(Certificate),
    }


def page() -> str:
    """Return the text of ``docs/certificate.schema.json``."""
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
