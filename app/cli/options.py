"""Declaration of the commands' options, and the conversion of declarations to parameters for typer.

A command is a function. Each of its parameters declares one of these:

- an option, if the default is an :func:`option`;
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

REQUIRED = MISSING
"""Default of a required option."""


def option(text: str, metavar: str | None = None, *names: str, default: Any = None, **more: Any) -> Any:
    """Declare an option: its help text, and its names if they differ from the name of the parameter or field."""
    return field(default=default, metadata={"names": names, "shown": {"metavar": metavar, "help": text, **more}})


def argument(text: str, metavar: str, default: Any = REQUIRED) -> Any:
    """Declare a positional argument."""
    return field(default=default, metadata={"shown": {"metavar": metavar, "help": text}})


STORE_ENV = "TMMU_STORE"
"""Environment variable with the store's URL, the default of ``--store``."""

OUTPUT = ("-o", "--output")
Source = Annotated[str, typer.Argument(metavar="FILE", help="Model, graph, instance or plan; - reads standard input.")]
Model = Annotated[str, typer.Argument(metavar="FILE", help="Model, graph or instance; - reads standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON; errors become one JSON record.")]
Out = Annotated[
    str | None, typer.Option(*OUTPUT, metavar="FILE", help="Write to this file; - writes to standard output.")
]

StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help=f"Store URL: sqlite:///plans.db or postgresql://… [${STORE_ENV}]."),
]
Branch = Annotated[str | None, typer.Option("--branch", metavar="NAME", help="Use only runs of this branch.")]
Planner = Annotated[str | None, typer.Option("--planner", metavar="NAME", help="Use only runs of this planner.")]


def with_options(command: Callable[..., int]) -> Callable[..., int]:
    """Return the command as a function with one parameter per option, which typer can read."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {
        p.name: p.annotation for p in own if is_dataclass(p.annotation) and p.annotation is not PlanRequest
    }
    takes_request = any(p.annotation is PlanRequest for p in own)

    @functools.wraps(command)
    def wrapper(**given: Any) -> int:
        values = {
            name: cls(**{each.name: given.pop(each.name) for each in fields(cls)}) for name, cls in groups.items()
        }
        return _call_with_request(command, given, values) if takes_request else command(**given, **values)

    parameters = [each for p in own for each in _expanded(p)]
    if takes_request:
        parameters += [*(_shared(name, spec) for name, spec in OPTION_SPECS.items()), NO_RUN]
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def _expanded(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    """Yield a typer parameter for each option that a parameter of a command declares."""
    kind = parameter.annotation
    if kind is PlanRequest:
        return
    if isinstance(parameter.default, Field):
        yield _declared(parameter.name, kind, parameter.default)
    elif is_dataclass(kind):
        types = get_type_hints(kind)
        yield from (_declared(each.name, types[each.name], each) for each in fields(kind))
    else:
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)


def _declared(name: str, kind: Any, declared: Field[Any]) -> inspect.Parameter:
    """Return the typer parameter of an :func:`option` or an :func:`argument`."""
    default = inspect.Parameter.empty if declared.default is MISSING else declared.default
    names, shown = declared.metadata.get("names"), declared.metadata["shown"]
    if names is None:
        return _parameter(name, kind, default, typer.Argument(**shown))
    names = names or [f"--{name.replace('_', '-')}"] * (kind is bool)  # an explicit name adds no --no-NAME
    return _parameter(name, kind, default, typer.Option(*names, **shown))


def _parameter(name: str, kind: Any, default: Any, declaration: Any) -> inspect.Parameter:
    annotation = Annotated[kind, declaration]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _shared(name: str, spec: OptionSpec) -> inspect.Parameter:
    if spec.flag:
        return _parameter(name, bool, False, typer.Option(spec.option, *spec.alias, help=spec.about))
    shown = typer.Option(spec.option, *spec.alias, metavar=spec.metavar, help=spec.about)
    return _parameter(name, list[str] | None if spec.many else str | None, None, shown)


NO_RUN = _parameter("no_run", bool, False, typer.Option("--no-run", help="Never run an ONNX model to find its shapes."))


def _call_with_request(command: Callable[..., int], given: dict[str, Any], groups: Mapping[str, Any]) -> int:
    """Call a command with the request of the planning options in ``given``."""
    texts = {name: given.pop(name) for name in OPTION_SPECS}
    texts |= {name: "1" if texts[name] else None for name, spec in OPTION_SPECS.items() if spec.flag}
    others = [*given.items(), *(pair for group in groups.values() for pair in vars(group).items())]
    files = [value for name, value in others if name != "output"]
    files += [texts[name] for name, spec in OPTION_SPECS.items() if spec.file]
    if files.count(STREAM) > 1:
        raise UsageError("standard input can be read only once.", "Use - for one file.")
    request = PlanRequest(**{name: _read(name, text) for name, text in texts.items() if text is not None})
    if (found := contradiction(request)) is not None:
        raise UsageError(found.message, found.hint)
    changed_limits = {limits.RUN_SECONDS.name: 0} if given.pop("no_run") else {}
    try:
        with limits.raised(changed_limits):
            return command(**given, **groups, request=request)
    except ContractError as error:
        if request.token is not None or request.seed is not None:
            error.fill(replay_token=request.replay_token.hex(), rank=request.rank)
        raise


def _read(name: str, text: str | list[str]) -> Any:
    spec = OPTION_SPECS[name]
    try:
        if name == "options":
            assert isinstance(text, list)
            return option_pairs(text)
        if isinstance(text, list):
            return spec.read(",".join(text))
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


def read_token(text: str) -> bytes:
    """Parse 64 hexadecimal digits to 32 bytes. Raises :class:`UsageError`."""
    token: bytes = _read("token", text)
    return token


def read_bytes_option(name: str, text: str) -> int:
    """Parse a size such as ``8MiB`` to bytes. Raises :class:`UsageError` with the name of the option."""
    try:
        size: int = OPTION_SPECS["alignment"].read(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
    return size
