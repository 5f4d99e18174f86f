"""``python -m tests.declared``: write ``golden/declared.json`` anew. Review the difference like code.

What a module of the core declares where it is read, and no call answers for: its constants, the defaults of its
functions and of its classes' fields, what its dataclasses and structs are made to be, the columns of its tables. A line
for each, by module. A limit, a border or a default that is changed shows here beside what it belongs to.

Left out are modules that need what the base environment has not.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec
import numpy as np

from tests.golden import GOLDEN
from tests.mutation.sites import ELSEWHERE
from tests.verdicts import written

ROOT = Path(__file__).resolve().parents[1]
DECLARED = GOLDEN / "declared.json"
APART = (*ELSEWHERE, "tmmu_core/store/migrations/")
"""Modules that run in a process of their own, with PyTorch, onnxruntime or LiteRT, or inside Alembic."""
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
EMPTY = ("{}", "[]", "set()", "dict()", "list()")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
LONG = 160
"""Letters beyond which a value is told by its hash."""
MADE_TO_BE = ("frozen", "eq", "order", "unsafe_hash", "array_like", "omit_defaults", "forbid_unknown_fields", "tag")


def files() -> list[str]:
    """The modules of the core by path below the project, in order."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tmmu_core").rglob("*.py"))
    return [file for file in found if not file.startswith(APART)]


def declared(file: str) -> list[str]:
    """A line for everything that one module declares, by its name there."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return sorted(_lines(import_module(name), _assigned(ast.parse((ROOT / file).read_text()))))


def _assigned(tree: ast.Module) -> set[str]:
    """The names a module gives values to in its own lines; not what begins empty, and is filled as the program runs."""
    found = set()
    for statement in ast.walk(ast.Module([each for each in tree.body if not isinstance(each, DEFINED)], [])):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if isinstance(statement, ast.Assign | ast.AnnAssign) and ast.unparse(statement.value or tree) not in EMPTY:
            found.update(each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
    return found


def _lines(module: ModuleType, assigned: set[str]) -> Iterator[str]:
    for name, value in vars(module).items():
        plain = getattr(value, "py_func", inspect.unwrap(value) if callable(value) else value)
        own = getattr(plain, "__module__", "") == module.__name__ and getattr(plain, "__name__", "") == name
        if isinstance(plain, FunctionType) and own:
            yield from _of_function(name, plain)
            if hasattr(value, "cache_parameters"):
                yield f"{name} keeps {value.cache_parameters()['maxsize']}"
        elif isinstance(plain, type) and own:
            yield from _of_class(plain)
        elif name in assigned and not name.startswith("__"):
            yield from _line(f"{name} = ", value)


def _of_function(name: str, function: FunctionType) -> Iterator[str]:
    for given in inspect.signature(function).parameters.values():
        if given.default is not given.empty:
            yield from _line(f"{name}({given.name}) = ", given.default)


def _of_class(kind: type) -> Iterator[str]:
    name = kind.__qualname__
    how = getattr(kind, "__struct_config__", getattr(kind, "__dataclass_params__", None))
    made = set()
    if how is not None:
        made = {"__init__", *inspect.signature(kind).parameters}
        yield f"{name} is {', '.join(f'{trait} {getattr(how, trait)}' for trait in MADE_TO_BE if hasattr(how, trait))}"
    yield from _of_fields(name, kind)
    for own, value in vars(kind).items():
        if own in made:
            continue
        inner = getattr(value, "__func__", getattr(value, "fget", getattr(value, "func", value)))
        if isinstance(inner, FunctionType) and inner.__module__ == kind.__module__:
            yield from _of_function(f"{name}.{own}", inner)
        elif isinstance(inner, type) and inner.__qualname__ == f"{name}.{own}":
            yield from _of_class(inner)
        elif not own.startswith("_") and not inspect.isdatadescriptor(value):
            yield from _line(f"{name}.{own} = ", value)


def _of_fields(name: str, kind: type) -> Iterator[str]:
    """Of a dataclass or a struct: what a field is where nothing is said."""
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            of = field.default if field.default is not dataclasses.MISSING else field.default_factory
            if of is not dataclasses.MISSING or not (field.init and field.repr and field.compare):
                yield f"{name}.{field.name} : {_short(of)}, {field.init}, {field.repr}, {field.compare}"
    elif issubclass(kind, msgspec.Struct):
        for one in msgspec.structs.fields(kind):
            if not one.required:
                of = one.default if one.default is not msgspec.NODEFAULT else one.default_factory
                yield f"{name}.{one.name} : {_short(of)}"


def _line(before: str, value: Any) -> Iterator[str]:
    """Nothing where a value cannot be said."""
    if short := _short(value):
        yield before + short


def _short(value: Any) -> str:
    text = said(value)
    return text if len(text) <= LONG else f"{len(text):,} letters, {sha256(text.encode()).hexdigest()[:12]}"


def said(value: Any) -> str:
    """A value in words that are the same in every process, on every machine and in every version of Python."""
    if value is None or isinstance(value, bool | int | float | str | bytes | range):
        return repr(value) if not isinstance(value, Enum) else str(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)} {value.tolist()}"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.item()}"
    if isinstance(value, re.Pattern):
        return f"{value.pattern!r} {int(value.flags)}"
    if hasattr(value, "columns") and hasattr(value, "indexes"):
        return ADDRESS.sub("", repr(value))  # a table of a store, column by column
    if hasattr(value, "cache_parameters"):
        return f"{said(inspect.unwrap(value))} keeps {value.cache_parameters()['maxsize']}"
    if isinstance(value, functools.partial):
        return f"{said(value.func)} with {said(value.args)}, {said(value.keywords)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{said(key)}: {said(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return type(value).__name__ + "(" + ", ".join(map(said, value)) + ")"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(map(said, value))) + "}"
    if isinstance(value, type | FunctionType):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}({', '.join(said(getattr(value, f.name)) for f in dataclasses.fields(value))})"
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}({', '.join(said(getattr(value, f)) for f in value.__struct_fields__)})"
    return ""


@cache
def kept() -> dict[str, list[str]]:
    """Module → lines, as the file has them."""
    return json.loads(DECLARED.read_text())  # type: ignore[no-any-return]


def main() -> None:
    """Write the file."""
    written(DECLARED, ((file, lines) for file in files() if (lines := declared(file))))


if __name__ == "__main__":
    main()
