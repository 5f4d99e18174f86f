"""Run a command line of ``tmmu``: select the command, and convert exceptions to exit codes."""

import errno
import io
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.exceptions import Abort, TyperException

from app.cli.console import BAD_INPUT, INTERNAL_ERROR, STREAM, SUCCESS, UsageError, print_error, print_note
from app.cli.options import OUTPUTS, with_options
from tmmu_core import version_line
from tmmu_core.base import limits
from tmmu_core.base.errors import TmmuError, UnwritableOutput

MAIN_COMMANDS = ("plan", "fit", "compare", "gate", "report", "explore", "export", "measure", "record", "history")
MORE_COMMANDS = ("verify", "lint", "trace", "checkpoint", "restore", "apply", "convert", "sweep", "bisect", "schema")
COMMANDS = (*MAIN_COMMANDS, *MORE_COMMANDS)
MODULES = {"record": "history", "bisect": "history", "convert": "export", "report": "gate", "measure": "compare"}
MODULES |= dict.fromkeys(("verify", "lint", "trace", "checkpoint", "restore", "apply", "schema"), "specification")
"""Command → module in ``app.cli.commands``, for commands whose module has another name."""

INTERRUPTED = 130  # 128 + SIGINT
VERBOSE = ("-v", "--verbose")  # options that list why each reader rejected a file

WRITE_ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO, errno.EBADF)  # not reported as internal errors
SHOWN_LIMITS = (limits.UNPACKED_BYTES, limits.VALUES, limits.TRACE_SECONDS, limits.SERVER_WORKERS)
"""Limits that ``tmmu --help`` shows; ``docs/reference/settings.md`` lists all limits."""
LOG = logging.getLogger("tmmu")


class _TolerantFile(io.FileIO):
    """A file that discards the data of a write if the write fails with an error of the type :attr:`ignored`."""

    ignored: type[OSError] = BrokenPipeError  # raised if the reader of the pipe has closed it

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except self.ignored:
            return len(data)


class Command(TyperCommand):
    """A command that rejects empty values, and an output file that is also an input or another output."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Raises :class:`UsageError`; ``UnwritableOutput`` if the folder of an output is missing."""
        inputs, outputs = list[str](), list[tuple[str, str]]()
        for parameter in self.params:
            name, is_option = str(parameter.name), parameter.param_type_name == "option"
            value, source = ctx.params.get(name), ctx.get_parameter_source(name)
            texts = [text for text in (value if isinstance(value, list | tuple) else [value]) if isinstance(text, str)]
            is_empty = any(not text.strip(" \t\r\n,") for text in texts)
            if is_empty and source is not None and source.name == "COMMANDLINE":
                shown = parameter.opts[0] if is_option else str(parameter.metavar).strip("[].")
                hint = "Set a value, or omit the option." if is_option else "Set a value."
                raise UsageError(f"{shown} is empty.", f"{hint} A shell variable may be unset.")
            if name in OUTPUTS:
                outputs += [(name, text) for text in texts if text != STREAM]
            elif "FILE" in str(parameter.metavar):
                inputs += texts
        for position, (name, output) in enumerate(outputs):
            others = {text: "another output" for _, text in outputs[:position]}
            if (self.name, name) != ("convert", "output"):  # ``convert`` can rewrite a file in place
                others |= dict.fromkeys(inputs, "the input")
            if os.path.exists(output) and not os.path.isfile(output):
                continue  # a device, or the folder of a C project
            for file, use in others.items():
                if os.path.realpath(file) == os.path.realpath(output):
                    raise UsageError(f"the output {output} is {use}, {file}.", "Write to another file.")
            if self.name != "export" and not os.path.isdir(os.path.dirname(output) or "."):  # export creates one
                raise UnwritableOutput(f"{output} cannot be written: its folder does not exist.", "Create the folder.")
        return super().invoke(ctx)


def build(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """Return the typer application with the given commands."""
    app = typer.Typer(
        name="tmmu",
        help="Plan, check and show the memory of tensor programs.",
        no_args_is_help=False,
        add_completion=True,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        epilog="Resource limits of every command: "
        + ", ".join(f"--max-{limit.name} N" for limit in SHOWN_LIMITS)
        + ". All limits: docs/reference/settings.md. With -v, the error of an unreadable file lists why each format "
        "reader rejected it.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in commands:
        module = import_module(f"{__package__}.commands.{MODULES.get(name, name)}")
        panel = "Commands" if name in MAIN_COMMANDS else "More commands"
        app.command(name, cls=Command, rich_help_panel=panel)(with_options(getattr(module, f"{name}_command")))

    @app.callback(invoke_without_command=True)
    def without_command(
        context: typer.Context, version: bool = typer.Option(False, "--version", help="Show the version and exit.")
    ) -> int:
        if version:
            print(version_line())
            raise typer.Exit(SUCCESS)
        if context.invoked_subcommand is None:
            print(context.get_help())
            raise typer.Exit(BAD_INPUT)
        return SUCCESS

    return app


class _StderrHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        print_note(record.getMessage())


def run(arguments: Sequence[str]) -> int:
    """Run one command line (without ``tmmu``) and return its exit code. Errors are written to standard error."""
    as_json, verbose = "--json" in arguments, any(word in arguments for word in VERBOSE)
    if not LOG.handlers:
        LOG.addHandler(_StderrHandler())
        LOG.setLevel(logging.INFO)
    try:
        limits.refuse_unknown_settings()
        variables = {f"--max-{limit.name}": limit.variable for limit in limits.LIMITS}
        others, remaining = list[str](), iter(arguments)
        for argument in remaining:
            option, equals, value = argument.partition("=")
            if option in variables:
                maximum = limits.whole_number(value if equals else next(remaining, ""), option)
                os.environ[variables[option]] = str(maximum)
            elif argument not in VERBOSE:
                others.append(argument)
        first = next(iter(others), "")
        tmmu = build((first,) if first in COMMANDS else COMMANDS)  # faster: imports the module of one command
        code = int(tmmu(others, standalone_mode=False, prog_name="tmmu") or SUCCESS)
        sys.stdout.flush()
        return code
    except TmmuError as error:
        print_error(error, as_json=as_json, verbose=verbose)
        return BAD_INPUT
    except TyperException as error:
        context, message = getattr(error, "ctx", None), error.format_message().rstrip(".")
        text = f"{message[:1].lower()}{message[1:]}{'' if message.endswith('?') else '.'}"
        print_error(UsageError(text, f"See {context.command_path if context else 'tmmu'} --help."), as_json=as_json)
        return BAD_INPUT
    except (KeyboardInterrupt, Abort):
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, OSError) and error.errno in WRITE_ERRORS:
            message = f"standard output cannot be written: {(error.strerror or str(error)).lower()}."
            print_error(UsageError(message, "Free space, or write to another file."), as_json=as_json)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit fails again
            return BAD_INPUT
        traceback.print_exc()
        print("tmmu: internal error. This is a bug in tmmu; please report it with the traceback.", file=sys.stderr)
        return INTERNAL_ERROR


def main() -> None:
    """Run the command line of this process and exit with its exit code."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # open the missing descriptors 0 to 2, so that no other file gets one of them
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name) or open(number, "w" if number else "r", closefd=False)  # noqa: SIM115
        if number and isinstance(stream, io.TextIOWrapper):
            file = _TolerantFile(number, "w", closefd=False)
            file.ignored = OSError if name == "stderr" else BrokenPipeError
            with suppress(AttributeError):  # Windows has no blocking mode before Python 3.12
                os.set_blocking(number, True)
            buffer, is_line_buffered = io.BufferedWriter(file), stream.line_buffering
            stream = io.TextIOWrapper(buffer, stream.encoding, "backslashreplace", None, is_line_buffered)
        setattr(sys, name, stream)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
