"""Imports and calls third-party code that is named ``package.module:Factory``, and reports every mistake clearly.

If such code does not return (it raises, exits the program or never ends), its user gets one sentence that says so. A
third party's code never decides the exit code of a command.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barrier_tck.harness.support import wall_clock
from barrier_tck.harness.support.errors import HarnessError, UsageProblem
from barrier_tck.harness.support.exception_line import exception_line
from barrier_tck.harness.support.wall_clock import TooLate, limited

SECONDS_MAX = 60.0
"""How long importing and calling may take together. What takes longer belongs into a later call."""
_SHOWN_MAX = 120
"""How many characters of a name a message shows."""


class _TooLate(TooLate):
    """Importing and calling took too long."""


def is_target(name: str) -> bool:
    """Return whether a name has the form ``package.module:Factory``."""
    module, colon, factory = name.partition(":")
    return bool(colon) and factory.isidentifier() and all(part.isidentifier() for part in module.split("."))


def shown(name: str) -> str:
    """Return a name for a message, in quotes and cut short if it is long."""
    return repr(name if len(name) <= _SHOWN_MAX else f"{name[:_SHOWN_MAX]}…")


def search_working_directory() -> None:
    """Let modules in the working directory be found: an installed command does not search there by itself."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)


def imported(target: str, what: str) -> Callable[..., object]:
    """Import the factory that a target names; ``what`` says what it should make, for instance ``system``.

    Raises UsageProblem, with the reason, if there is none.
    """
    factory = object_named(target, what)
    if not callable(factory):
        raise UsageProblem(
            f"{shown(target)} is {article(type(factory).__name__)}, which makes no {what}; name a class or a function "
            f"that makes the {what}"
        )
    made: Callable[..., object] = factory
    return made


def object_named(target: str, what: str) -> object:
    """Import what a target names; ``what`` says what it should be.

    Raises UsageProblem, with the reason, if it cannot be imported.
    """
    module, _, name = target.partition(":")
    failure = f"the {what} {shown(target)} cannot be imported"
    with _rendered(failure):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module exists, but something that it imports does not
            raise UsageProblem(f"{failure}: No module named {shown(error.name)}") from error
        if not hasattr(found, name):
            public = [known for known in vars(found) if not known.startswith("_")]
            near = difflib.get_close_matches(name, public, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UsageProblem(f"{failure}: {shown(module)} has no {shown(name)}{hint}")
        return getattr(found, name)


def make(target: str, what: str, kind: type, *arguments: object) -> Any:
    """Import a target, call it, and return what it makes.

    ``kind`` is the protocol that the result must implement. Raises UsageProblem, with the reason, if it cannot be made
    or lacks a member of the protocol.
    """
    factory = imported(target, what)
    with _rendered(f"the {what} {shown(target)} cannot be made"):
        made = factory(*arguments)
        missing = [name for name in vars(kind) if not name.startswith("_") and not hasattr(made, name)]
    if missing or isinstance(made, type):
        lacks = f"it has no {', '.join(missing)}" if missing else "it is a class, and not an instance"
        raise UsageProblem(
            f"{shown(target)} makes {article(type(made).__name__)}, which is no {what}: {lacks} (see {kind.__name__})"
        )
    return made


def article(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


@contextlib.contextmanager
def _rendered(failure: str) -> Iterator[None]:
    """Turn every failure into a UsageProblem, except errors of our own families."""
    try:
        with limited(SECONDS_MAX, _TooLate):
            yield
    except HarnessError:
        raise
    except _TooLate as late:
        raise UsageProblem(f"{failure}: that took longer than {SECONDS_MAX:g} s") from late
    except SystemExit as stop:
        raise UsageProblem(f"{failure}: it tried to end the program with exit code {stop.code!r}") from stop
    except Exception as error:
        raise UsageProblem(f"{failure}: {what_happened(error)}") from error


def what_happened(error: BaseException) -> str:
    """Return an error of third-party code as a phrase with its place: that is where its author has to look."""
    last_line = exception_line(error)
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{last_line} ({Path(error.filename).name}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"{last_line} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else last_line
    )


def where_it_was(error: BaseException) -> str:
    """Return the innermost place of an error's traceback, leaving out ``threading`` and the time limit's own frames,
    for instance ``line 12 of backend.py (snapshot)``.
    """
    ours = (wall_clock.__file__, threading.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename not in ours]
    last = frames[-1] if frames else None
    return f"line {last.lineno} of {Path(last.filename).name} ({last.name})" if last else "an unknown place"
