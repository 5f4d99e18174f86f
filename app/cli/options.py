"""Declare the options of commands, and convert the declarations to parameters that typer reads.

A command is a function. Each of its parameters declares one of these:

- an option or an argument, if the default is an :func:`option` or an :func:`argument`;
- a group of options, if the type is a dataclass whose fields are options;
- the planning options of contract §10, if the type is :class:`~tmmu_core.plans.making.request.PlanRequest`.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from app.cli.console import STREAM, UsageError, read_input
from tmmu_core.base import limits
from tmmu_core.base.errors import ContractError, UnreadableInput
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, OptionSpec, contradiction, option_pairs

REQUIRED = MISSING  # default of a required option


def option(text: str, metavar: str | None = None, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare an option: help text, names (default: the parameter's), further arguments of ``typer.Option``."""
    return field(default=default, metadata={"names": names, "shown": {"metavar": metavar, "help": text, **more}})


def argument(text: str, metavar: str, default: Any = REQUIRED) -> Any:
    """Declare a positional argument."""
    return field(default=default, metadata={"shown": {"metavar": metavar, "help": text}})


STORE_ENV = "TMMU_STORE"  # environment variable with the default of --store

OUTPUT = ("-o", "--output")
SOURCE: str = argument("Model, graph, instance or plan; - reads standard input.", "FILE")
MODEL: str = argument("Model, graph or instance; - reads standard input.", "FILE")
AS_JSON: bool = option("Write JSON; errors become one JSON record.", None, "--json", default=False)
OUT: str | None = option("Write to this file; - writes to standard output.", "FILE", *OUTPUT)
OUT_OR_STREAM: str = option("Write to this file; - writes to standard output.", "FILE", *OUTPUT, default=STREAM)
AGAINST: str | None = option("Graph of a plan file, to check the plan against.", "FILE", "--graph")
STORE: str | None = option(f"Store URL: sqlite:///plans.db or postgresql://… [${STORE_ENV}].", "URL")
BRANCH: str | None = option("Use only runs of this branch.", "NAME")
PLANNER: str | None = option("Use only runs of this planner.", "NAME")


def with_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command as a function with one parameter for each option, which typer can read."""
    declarations = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        p.name: p.annotation for p in declarations if is_dataclass(p.annotation) and p.annotation is not PlanRequest
    }
    takes_request = any(p.annotation is PlanRequest for p in declarations)

    @functools.wraps(command)
    def wrapper(**values: Any) -> int:
        filled = {name: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        return _call_with_request(command, values, filled) if takes_request else command(**values, **filled)

    parameters = [parameter for p in declarations for parameter in _typer_parameters(p)]
    if takes_request:
        parameters += [*(_planning_parameter(name, spec) for name, spec in OPTION_SPECS.items()), NO_RUN]
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _typer_parameters(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield a typer parameter for each option that a parameter declares; none for the planning options."""
    kind = parameter.annotation
    if isinstance(parameter.default, Field):
        yield _declared(parameter.name, kind, parameter.default)
    elif kind is not PlanRequest:
        types = get_type_hints(kind)
        yield from (_declared(member.name, types[member.name], member) for member in fields(kind))


def _declared(name: str, kind: Any, declared: Field[Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if declared.default is MISSING else declared.default
    names, shown = declared.metadata.get("names"), declared.metadata["shown"]
    declaration: Any = typer.Argument(**shown)
    if names is not None:
        names = names or [f"--{name.replace('_', '-')}"] * (kind is bool)  # an explicit name adds no --no-NAME
        declaration = typer.Option(*names, **shown)
    annotation = Annotated[kind, declaration]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _planning_parameter(name: str, spec: OptionSpec) -> inspect.Parameter:
    if spec.flag:
        return _declared(name, bool, option(spec.about, None, spec.option, default=False))
    kind = list[str] | None if spec.many else str | None
    return _declared(name, kind, option(spec.about, spec.metavar, spec.option))


NO_RUN = _declared("no_run", bool, option("Never run an ONNX model to find its shapes.", default=False))


def _call_with_request(command: Callable[..., int], values: dict[str, Any], groups: Mapping[str, Any]) -> int:
    """Call a command with the planning options among ``values`` as a request. Raises :class:`UsageError`."""
    texts = {name: values.pop(name) for name in OPTION_SPECS}
    texts |= {name: "1" if texts[name] else None for name, spec in OPTION_SPECS.items() if spec.flag}
    others = [*values.items(), *(pair for group in groups.values() for pair in vars(group).items())]
    others += [(name, texts[name]) for name, spec in OPTION_SPECS.items() if spec.file]
    inputs = [value if isinstance(value, list) else [value] for name, value in others if name != "output"]
    if sum(files.count(STREAM) for files in inputs) > 1:
        raise UsageError("standard input can be read only once.", "Use - for one file.")
    request = PlanRequest(**{name: read_option(name, text) for name, text in texts.items() if text is not None})
    if (found := contradiction(request)) is not None:
        raise UsageError(found.message, found.hint)
    changed_limits = {limits.RUN_SECONDS.name: 0} if values.pop("no_run") else {}
    try:
        with limits.raised(changed_limits):
            return command(**values, **groups, request=request)
    except ContractError as error:
        if request.token is not None or request.seed is not None:
            error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
        raise


def read_option(name: str, text: str | list[str]) -> Any:
    """Return the value of a planning option; ``name``: its field. Raises :class:`UsageError`, ``UnreadableInput``."""
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
