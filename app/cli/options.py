"""Declare the options of commands, and add the planning options of contract §10.

A command is a function whose parameters are options and arguments of typer. A parameter whose type is a dataclass is
replaced by the fields of the dataclass, and the parameter ``request`` by all planning options.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import typer

from app.cli.console import STREAM, UsageError, read_input
from tmmu_core.base import limits
from tmmu_core.base.errors import ContractError, UnreadableInput
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, OptionSpec, contradiction, option_pairs

REQUIRED: Any = ...  # default of a required option


def option(text: str, metavar: str | None = None, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare an option. Default of ``names``: the parameter's name. ``more``: arguments of ``typer.Option``."""
    return typer.Option(default, *names, metavar=metavar, help=text, **more)


def flag(name: str, text: str) -> Any:
    """Declare an option without a value, of type ``bool``."""
    return typer.Option(False, name, help=text)


def argument(text: str, metavar: str, default: Any = REQUIRED) -> Any:
    """Declare a positional argument."""
    return typer.Argument(default, metavar=metavar, help=text)


STORE_ENV = "TMMU_STORE"  # environment variable with the default of --store

OUTPUT = ("-o", "--output")
SOURCE: str = argument("Model, graph, instance or plan; - reads standard input.", "FILE")
MODEL: str = argument("Model, graph or instance; - reads standard input.", "FILE")
AS_JSON: bool = flag("--json", "Write JSON; errors become one JSON record.")
OUT: str | None = option("Write to this file; - writes to standard output.", "FILE", *OUTPUT)
OUT_OR_STREAM: str = option("Write to this file; - writes to standard output.", "FILE", *OUTPUT, default=STREAM)
REQUIRED_OUT: str = option("Write to this file; - writes to standard output.", "FILE", *OUTPUT, default=REQUIRED)
REQUEST = "request"  # parameter that is replaced by all planning options
OUTPUTS = ("output", "recipe", "sidecar", "viewer")  # parameters that name a file to write; - is standard output
GRAPH: str | None = option("Graph of a plan file, to check the plan against.", "FILE", "--graph")
STORE: str | None = option(f"Store URL: sqlite:///plans.db or postgresql://… [${STORE_ENV}].", "URL")


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise the ``UnreadableInput`` of a value on the command line as :class:`UsageError`."""
    try:
        yield
    except UnreadableInput as error:
        raise UsageError(error.message, error.hint) from error


def with_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command with a keyword parameter per option instead of its dataclasses and its request."""
    declared = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {name: p.annotation for name, p in declared.items() if is_dataclass(p.annotation)}
    has_request = groups.pop(REQUEST, None) is not None
    options_of = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:
        request = _read_request(values) if has_request else None
        for name, options in options_of.items():
            values[name] = groups[name](**{key: values.pop(key) for key in options})
        if request is None:
            return command(**values)
        changed_limits = {limits.RUN_SECONDS.name: 0} if values.pop("no_run") else {}
        try:
            with limits.overridden(changed_limits):
                return command(**values, request=request)
        except ContractError as error:
            if request.token is not None or request.seed is not None:
                error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
            raise

    others = [
        options_of[name].values() if name in options_of else [p] for name, p in declared.items() if name != REQUEST
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for group in others for p in group]
    parameters += PLANNING if has_request else []
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _read_request(values: dict[str, Any]) -> PlanRequest:
    """Remove the planning options from ``values`` and return their request."""
    texts = {name: values.pop(name) for name in OPTION_SPECS}
    texts |= {name: "1" if texts[name] else None for name, spec in OPTION_SPECS.items() if spec.flag}
    named_values = [*values.items(), *((name, texts[name]) for name, spec in OPTION_SPECS.items() if spec.file)]
    inputs = [value if isinstance(value, list) else [value] for name, value in named_values if name not in OUTPUTS]
    if sum(files.count(STREAM) for files in inputs) > 1:
        raise UsageError("standard input can be read only once.", "Use - for only one file.")
    request = PlanRequest(**{name: read_option(name, text) for name, text in texts.items() if text is not None})
    if (conflict := contradiction(request)) is not None:
        raise UsageError(conflict.message, conflict.hint)
    return request


def _parameter(name: str, spec: OptionSpec) -> inspect.Parameter:
    kind: Any = bool if spec.flag else list[str] | None if spec.many else str | None
    declared = flag(spec.option, spec.help_text) if spec.flag else option(spec.help_text, spec.metavar, spec.option)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=kind)


PLANNING = [_parameter(name, spec) for name, spec in OPTION_SPECS.items()]
PLANNING += [_parameter("no_run", OptionSpec("--no-run", "", "Never run an ONNX model to find its shapes.", flag=True))]


def read_option(name: str, text: str | list[str]) -> Any:
    """Return the value of the planning option for the field ``name``. Raises ``UsageError`` or ``UnreadableInput``."""
    spec = OPTION_SPECS[name]
    try:
        if isinstance(text, list):
            return option_pairs(text) if name == "options" else spec.read(",".join(text))
        return spec.read(read_input(text).decode("utf-8-sig") if spec.file else text)
    except UnicodeDecodeError as error:
        place = f"byte {error.start}"
        what, hint = f"the {spec.file} is not UTF-8 text.", "Save the file as UTF-8."
        raise UnreadableInput(what, source=str(text), place=place, hint=hint) from error
    except UnreadableInput as error:
        error.source = str(text) if spec.file else error.source
        raise
    except ValueError as error:
        raise UsageError(f"{spec.option}: {error}", f"Write {spec.option} {spec.metavar}.") from None
