"""``tmmu``: the commands by name, and the way from what was raised to an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.exceptions import Abort, TyperException

from app.cli import streams
from app.cli.console import BAD_INPUT, FINE, OUR_FAULT, UsageFault, fault, note
from tmmu_core import version_line
from tmmu_core.compiled import when_compiling
from tmmu_core.errors import TmmuError
from tmmu_core.limits import LIMITS, whole_number

COMMANDS = (
    "plan",
    "fit",
    "trace",
    "compare",
    "lint",
    "verify",
    "gate",
    "sweep",
    "export",
    "report",
    "convert",
    "checkpoint",
    "restore",
    "apply",
    "measure",
    "record",
    "history",
    "bisect",
    "schema",
    "explore",
)
"""In the order in which the help lists them; each is a module of this package with a function ``command``."""

INTERRUPTED = 130

BLANK = " \t\r\n,"
"""A value of nothing else says nothing, whatever it is of."""
EMPTY = "Give it a value, or leave it out; a variable in the command may be unset."


class NoRoom(UsageFault):
    """What is written to has no room for it."""


NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF)


def _with_room(work: Callable[[], int]) -> int:
    """Work, and have written what there is to write. Raises :class:`NoRoom`."""
    try:
        code = work()
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        why = (error.strerror or str(error)).lower()
        raise NoRoom(f"standard output cannot be written: {why}.", "Make room, or write elsewhere.") from error


def wanted(arguments: Sequence[str]) -> tuple[str, ...]:
    """The commands that an argument list needs loaded: the one it begins with, or all, for help, faults and the shell.

    Loading every command takes longer than planning a small graph.
    """
    first = next(iter(arguments), "")
    return (first,) if first in COMMANDS else COMMANDS


class Command(TyperCommand):
    """A command none of whose values may be empty: an unset variable in a script would take a limit away in silence."""

    def invoke(self, ctx: Any) -> Any:
        """Run it. Raises :class:`UsageFault` for a value that says nothing."""
        for parameter in self.params:
            given = ctx.params.get(str(parameter.name))
            source = ctx.get_parameter_source(str(parameter.name))
            if source is None or source.name != "COMMANDLINE":
                continue
            values = given if isinstance(given, list | tuple) else (given,)
            if any(isinstance(value, str) and not value.strip(BLANK) for value in values):
                option = parameter.param_type_name == "option"
                what = parameter.opts[0] if option else str(parameter.metavar).strip("[].")
                raise UsageFault(f"{what} is empty.", EMPTY)
        return super().invoke(ctx)


def build(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """The command line as a typer application, with some of its commands or all."""
    app = typer.Typer(
        name="tmmu",
        help="See when every tensor lives, where it lies and why it does not fit.",
        no_args_is_help=False,
        add_completion=True,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        epilog="A file that asks for more than a limit is refused. In every command: "
        + ", ".join(f"--max-{limit.name} N" for limit in LIMITS)
        + ".",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in commands:
        app.command(name, cls=Command)(import_module(f"{__package__}.{name}").command)

    @app.callback(invoke_without_command=True)
    def whole(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Show the version and exit."),
    ) -> int:
        if version:
            print(version_line())
            raise typer.Exit(FINE)
        if context.invoked_subcommand is None:
            print(context.get_help())
            raise typer.Exit(BAD_INPUT)
        return FINE

    return app


def run(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code. Nothing is raised."""
    as_json = "--json" in arguments
    try:
        arguments = _limits_taken(arguments)
        when_compiling(note)
        tmmu = build(wanted(arguments))
        return _with_room(lambda: int(tmmu(list(arguments), standalone_mode=False, prog_name="tmmu") or FINE))
    except TmmuError as error:
        fault(error, as_json=as_json)
        if isinstance(error, NoRoom):
            streams.write_no_more()
        return BAD_INPUT
    except TyperException as error:
        fault(_usage(error), as_json=as_json)
        return BAD_INPUT
    except (KeyboardInterrupt, Abort):
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        print("tmmu: this is a fault of the program, not of the input; please report it.", file=sys.stderr)
        return OUR_FAULT


def _limits_taken(arguments: Sequence[str]) -> list[str]:
    """The arguments without ``--max-NAME N``, which set a limit for this process and those it starts, in any command.

    Raises ``UnreadableInput`` where N is no whole number.
    """
    by_option = {f"--max-{limit.name}": limit for limit in LIMITS}
    rest: list[str] = []
    left = iter(arguments)
    for argument in left:
        option, equals, value = argument.partition("=")
        if option not in by_option:
            rest.append(argument)
            continue
        os.environ[by_option[option].variable] = str(whole_number(value if equals else next(left, ""), option))
    return rest


def _usage(error: TyperException) -> UsageFault:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "tmmu"
    message = error.format_message().rstrip(".")
    end = "" if message.endswith("?") else "."
    return UsageFault(f"{message[:1].lower()}{message[1:]}{end}", f'See "{command} --help".')


def main() -> None:
    """The console script."""
    streams.settle()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
