"""The command ``barrier-tck``: the composition root, which puts the folders together and maps exit codes.

0 valid, 1 a property is violated, 2 unknown, 3 usage or environment, 4 a bug in this project. With ``--json`` the
last line of standard output is one JSON object, and everything for people goes to standard error. The command runs
in a child process (``supervision``), so that code which it runs cannot cause an exit code that looks like a verdict.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from barrier_tck.harness.cli.bench_command import bench
from barrier_tck.harness.cli.bisect_command import bisect
from barrier_tck.harness.cli.campaign_command import campaign
from barrier_tck.harness.cli.certify_command import certify
from barrier_tck.harness.cli.certify_storage_command import certify_storage
from barrier_tck.harness.cli.compare_command import compare
from barrier_tck.harness.cli.conformance_command import conformance
from barrier_tck.harness.cli.doctor_command import doctor
from barrier_tck.harness.cli.exit_codes import (
    EXIT_CODES,
    EXIT_INTERNAL,
    EXIT_INTERRUPTED,
    EXIT_PIPE,
    EXIT_USAGE,
)
from barrier_tck.harness.cli.explain_command import explain
from barrier_tck.harness.cli.faults_command import faults
from barrier_tck.harness.cli.init_command import init
from barrier_tck.harness.cli.join_command import join
from barrier_tck.harness.cli.mutants_command import mutants
from barrier_tck.harness.cli.nights_command import nights
from barrier_tck.harness.cli.patched_run import RanElsewhere
from barrier_tck.harness.cli.printing import (
    VerdictConsole,
    console_for,
    drop_from_now_on,
    emit,
    output_lost,
    write_whatever_the_encoding,
)
from barrier_tck.harness.cli.replay_command import replay
from barrier_tck.harness.cli.report_command import report
from barrier_tck.harness.cli.runs_command import runs
from barrier_tck.harness.cli.scopes_command import scopes
from barrier_tck.harness.cli.supervision import cause_of, supervised
from barrier_tck.harness.cli.verify_certificate_command import verify_certificate
from barrier_tck.harness.cli.yardstick_command import yardstick
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import HarnessError
from barrier_tck.harness.support.exception_line import exception_line
from barrier_tck.harness.support.notices import notices_shown
from barrier_tck.harness.support.third_party import shown, what_happened

_COMMAND_LINE_ERROR: type[Exception] = typer.BadParameter.__mro__[2]
"""Click's base class of all mistakes on a command line; since 0.20, Typer brings its own copy of Click."""

_NAME = "barrier-tck"
_LOST = "standard output could not be written: {}"
_COMPLETING = "_BARRIER_TCK_COMPLETE"
"""Set by the shell's completion, which Typer answers by printing and leaving."""
_COMPLETION_OPTIONS = ("--install-completion", "--show-completion")
"""Typer answers these in the same way."""

app = typer.Typer(
    name=_NAME,
    help="Fault-injection campaigns and conformance tests for barrier snapshots on Apache Spark.",
    epilog="Exit codes: 0 valid, 1 a property is violated, 2 unknown, 3 wrong usage or unfit machine, 4 a bug in "
    "barrier-tck.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for _command in (
    campaign,
    replay,
    compare,
    bisect,
    explain,
    report,
    join,
    runs,
    nights,
    init,
    faults,
    doctor,
    mutants,
    yardstick,
    scopes,
    bench,
    certify,
    certify_storage,
    verify_certificate,
    conformance,
):
    app.command()(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"{_NAME} {metadata.version(_NAME)}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Take the options that are given before a command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command in a child process and exit; the module's docstring lists the exit codes."""
    _open_standard_streams()
    write_whatever_the_encoding()
    given = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in given
    sys.exit(supervised(lambda: run(given), lambda how: _without_a_verdict(as_json, how)))


def _open_standard_streams() -> None:
    """Open streams that the caller closed; otherwise output would be printed into the next file that is opened."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _without_a_verdict(as_json: bool, how: str) -> int:
    return _fail(
        as_json,
        f"the command's process ended {how}, without a verdict: {cause_of(how)}; trials that were finished are kept in "
        "the run directory",
        EXIT_CODES[Verdict.UNKNOWN],
    )


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code, whatever is raised; 130 after Ctrl-C."""
    as_json = "--json" in arguments
    try:
        os.getcwd()
    except FileNotFoundError:
        return _fail(as_json, "the working directory was deleted; change to one that exists", EXIT_USAGE)
    try:
        with notices_shown(VerdictConsole(stderr=True).print):
            # A command that runs itself again, in another process, needs its arguments.
            result = app(list(arguments), prog_name=_NAME, standalone_mode=False, obj=list(arguments))
    except HarnessError as error:
        return _fail(as_json, str(error), error.exit_code)
    except RanElsewhere as ran:
        return ran.code
    except typer.Exit as stop:
        return _unless_lost(as_json, stop.exit_code)
    except _COMMAND_LINE_ERROR as error:
        return _fail(as_json, f"{_sentence(error)} (see {_NAME} --help)", EXIT_USAGE)
    except (typer.Abort, KeyboardInterrupt):
        return _fail(as_json, "interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        drop_from_now_on(sys.stdout)
        return EXIT_PIPE
    except SystemExit as stop:
        if isinstance(stop.__context__, BrokenPipeError):  # Typer exits in this way
            return EXIT_PIPE
        if _COMPLETING in os.environ or {*arguments[:1]} & {*_COMPLETION_OPTIONS}:
            return _unless_lost(as_json, int(stop.code or 0))
        return _fail(as_json, _leaving(stop), EXIT_USAGE)
    except OSError as error:
        if _was_printing(error):
            drop_from_now_on(sys.stdout)
            return _fail(as_json, _LOST.format(error.strerror), EXIT_USAGE)
        if error.errno != errno.ENAMETOOLONG:
            return _fail(as_json, _bug_message(error), EXIT_INTERNAL)
        return _fail(as_json, f"the name of a file is too long: {shown(str(error.filename))}", EXIT_USAGE)
    except BaseException as error:  # noqa: BLE001 - the last resort: report a bug, keep the traceback, exit 4
        return _fail(as_json, _bug_message(error), EXIT_INTERNAL)
    if result == EXIT_INTERRUPTED:  # newer versions of Typer turn Ctrl-C into this code
        return _fail(as_json, "interrupted", EXIT_INTERRUPTED)
    return _unless_lost(as_json, result if isinstance(result, int) else 0)


def _was_printing(error: OSError) -> bool:
    """Return whether Typer raised it while it printed help, the version or completion."""
    steps = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(steps) and str(steps[-1].f_globals.get("__name__")).partition(".")[0] in ("typer", "click")


def _unless_lost(as_json: bool, code: int) -> int:
    """Say that what was printed is lost, if it is; return the code, or that of an unfit machine instead of success."""
    lost = output_lost()
    if lost is None:
        return code
    failed = _fail(as_json, _LOST.format(lost), EXIT_USAGE)
    return code or failed


def _leaving(stop: SystemExit) -> str:
    """Say where called code tried to end the program; this must not be read as a verdict."""
    return (
        f"code that was called tried to end the program with exit code {stop.code!r}: {what_happened(stop)}; it must "
        "return or raise an error instead"
    )


def _sentence(error: Exception) -> str:
    """Return Click's message with the name of the option, which ``str`` leaves out."""
    format_message = getattr(error, "format_message", None)
    return str(format_message()) if format_message is not None else str(error)


def _fail(as_json: bool, message: str, code: int) -> int:
    console_for(as_json=True).print(f"barrier-tck: {message}", markup=False)
    emit(as_json, {"error": message, "exit_code": code})
    return code


def _bug_message(error: BaseException) -> str:
    last_line = exception_line(error)
    with tempfile.NamedTemporaryFile("w", prefix="barrier-tck-crash-", suffix=".txt", delete=False) as file:
        traceback.print_exception(error, file=file)
    where = f"the traceback is in {file.name}; please report it with the command line"
    return f"a bug in barrier-tck: {last_line}\n  {where}"


if __name__ == "__main__":
    main()
