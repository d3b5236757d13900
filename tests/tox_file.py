"""What ``tox.ini`` says, for tests."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

_FILE = Path(__file__).resolve().parents[1] / "tox.ini"


def read() -> configparser.ConfigParser:
    """Return all sections."""
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(_FILE)
    return tox


def environments() -> dict[str, str]:
    """Return the name of each environment -> its section, which is that of several if it has braces."""
    found = {}
    for section in read().sections():
        kind, colon, name = section.partition(":")
        if kind != "testenv" or not colon:
            continue
        choices = re.search(r"{([^}]*)}", name)
        for choice in choices[1].split(",") if choices else [""]:
            found[re.sub(r"{[^}]*}", choice, name)] = section
    return found
