"""Types for the JSON of an exported program (the part of PyTorch's schema that a plan needs), and evaluation of sizes.

A dynamic size is written as a SymPy formula, such as ``Mul(Integer(8), Symbol('s77'))`` or ``8*s77``, with its value in
the example, unless the size depends on data. SymPy's own reader evaluates such text as Python. This module parses
the text and evaluates numbers, symbols, operators and the functions below. It executes no code.
"""

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from tmmu_core.base import strict

LONGEST_FORMULA = 2_000
LARGEST = 2**63 - 1
_Number = Fraction | float  # a value in a formula; as in PyTorch, a ``Float`` makes the result 64-bit floating point
Value = dict[str, Any]  # a serialized argument: one key for its kind (``as_tensor``, ``as_ints``) with the value


class SizeUnknown(Exception):
    """A size that cannot be computed; ``str`` is the reason."""


class Hint(msgspec.Struct, frozen=True):
    """Value of a formula in the example."""

    as_int: int | None = None


class Formula(msgspec.Struct, frozen=True):
    """A dynamic (symbolic) size."""

    expr_str: str = ""
    hint: Hint | None = None


class Size(msgspec.Struct, frozen=True):
    """One dimension, stride or offset: a number or a formula."""

    as_int: int | None = None
    as_expr: Formula | None = None

    @property
    def example(self) -> int | None:
        """Value of the formula in the example; ``None`` if unknown."""
        return self.as_expr.hint.as_int if self.as_expr and self.as_expr.hint else None


class Argument(msgspec.Struct, frozen=True):
    """One argument of an operator."""

    arg: Value
    name: str = ""
    kind: int | None = None  # 1 by position, 2 by name


class Operation(msgspec.Struct, frozen=True):
    """One call of an operator."""

    target: str
    inputs: tuple[Argument, ...] = ()
    outputs: tuple[Value, ...] = ()
    name: str | None = None
    metadata: Any = None  # metadata of the node's origin; only texts in it are read


class Meta(msgspec.Struct, frozen=True):
    """Metadata of a tensor."""

    dtype: int
    sizes: tuple[Size, ...] = ()
    strides: tuple[Size, ...] = ()
    storage_offset: Size = Size(as_int=0)
    requires_grad: bool = False
    layout: int = 7  # PyTorch's number; 7: strided (dense)


class Body(msgspec.Struct, frozen=True):
    """A graph: of the whole program, or a body that is an argument of a control-flow operator."""

    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    nodes: tuple[Operation, ...] = ()
    tensor_values: dict[str, Meta] = {}
    sym_int_values: dict[str, Size] = {}
    is_single_tensor_return: bool = False


class IoSpec(msgspec.Struct, frozen=True):
    """One input or output of the program."""

    arg: Value | None = None
    parameter_name: str = ""
    buffer_name: str = ""
    tensor_constant_name: str = ""
    user_input_name: str = ""

    @property
    def tensor(self) -> str:
        """The tensor in the graph; ``""`` for a number or another value."""
        arg = self.arg or {}
        value = arg.get("as_tensor", arg)
        name = value.get("name") if isinstance(value, dict) else None
        return name if isinstance(name, str) else ""

    @property
    def target(self) -> str:
        """Name of the parameter, buffer, constant or user input that this input is, or that this output writes."""
        return self.parameter_name or self.buffer_name or self.tensor_constant_name or self.user_input_name


class Signature(msgspec.Struct, frozen=True):
    """The kind of each input and output (``parameter``, ``buffer_mutation``) and its target, in graph order."""

    input_specs: tuple[dict[str, IoSpec], ...] = ()
    output_specs: tuple[dict[str, IoSpec], ...] = ()


class Module(msgspec.Struct, frozen=True):
    """The graph with its signature."""

    graph: Body
    signature: Signature = Signature()
    module_call_graph: tuple[Any, ...] = ()  # the call signatures of modules; the first one is of the whole program


class Document(msgspec.Struct, frozen=True):
    """The JSON file."""

    graph_module: Module
    range_constraints: dict[str, Any] = {}  # symbol → ``{"min_val": …, "max_val": …}``


class Weight(msgspec.Struct, frozen=True):
    """The archive member with the bytes of a weight; tied weights have the same member."""

    path_name: str = ""
    use_pickle: bool = False


class Weights(msgspec.Struct, frozen=True):
    """A table of the archive: weights by name."""

    config: dict[str, Weight] = {}


strict.register_types(Argument, Operation, Meta, Body, IoSpec, Signature, Module, Document, Weights)


def number(size: Size, symbols: Mapping[str, int], ignore_recorded: bool = False) -> int:
    """Return a size: its recorded value unless ``ignore_recorded``, else its formula's. Raises :class:`SizeUnknown`."""
    if size.as_int is not None:
        value = size.as_int
    elif size.as_expr is None:
        raise SizeUnknown("it is neither a number nor a formula")
    elif not ignore_recorded and size.example is not None:
        value = size.example
    else:
        value = evaluate(size.as_expr.expr_str, symbols)
    if not 0 <= value <= LARGEST:
        raise SizeUnknown(f"it is {strict.shown(value)}, and a size is from 0 to 2^63 − 1")
    return value


def symbol_in(size: Size) -> tuple[str, int] | None:
    """Return ``(symbol, value in the example)`` of a size that is one symbol with a value; ``None`` for other sizes."""
    if size.as_expr is None or size.example is None:
        return None
    match = re.fullmatch(r"Symbol\('(\w{1,80})'[\w=, ]{0,200}\)|([A-Za-z_]\w{0,80})", size.as_expr.expr_str)
    return (match[1] or match[2], size.example) if match else None


def data_dependent_symbols(size: Size) -> list[str]:
    """Return the data-dependent symbols of a size (``u0`` …); none if it has a value in the example."""
    if size.as_expr is None or size.example is not None:
        return []
    return re.findall(r"\bu\d{1,9}\b", size.as_expr.expr_str[:LONGEST_FORMULA])


def evaluate(formula: str, symbols: Mapping[str, int]) -> int:
    """Evaluate ``formula`` to a whole number. Raises :class:`SizeUnknown`."""
    if len(formula) > LONGEST_FORMULA:
        raise SizeUnknown(f"its formula is longer than {LONGEST_FORMULA} characters")
    try:
        value = _value(ast.parse(formula.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise SizeUnknown(f"{strict.shown(formula)} is not a formula of sizes") from error
    except (TypeError, ZeroDivisionError) as error:
        raise SizeUnknown(f"{strict.shown(formula)} divides by 0, or a function has unsupported arguments") from error
    if value % 1:
        raise SizeUnknown(f"{strict.shown(formula)} is not a whole number")
    return int(value)


def _value(node: ast.AST, symbols: Mapping[str, int]) -> _Number:
    """Return the value of part of a formula; a symbol's assumptions (``positive=True``) are ignored."""
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            result: _Number = Fraction(number)
        case ast.Call(func=ast.Name(id="Float"), args=[ast.Constant(value=str(text))]):
            result = float(text)
        case ast.Name(id=name) | ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))]):
            if name not in symbols:
                raise SizeUnknown(f"the size {strict.shown(name)} is dynamic, and the example has no value for it")
            result = Fraction(symbols[name])
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            result = -_value(inner, symbols)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign).__name__ in FUNCTIONS:
            result = FUNCTIONS[type(sign).__name__](_value(left, symbols), _value(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            result = FUNCTIONS[name](*[_value(each, symbols) for each in arguments])
        case _:
            raise SizeUnknown(f"{strict.shown(ast.unparse(node))} is not a formula of sizes")
    if not -LARGEST <= result <= LARGEST or (isinstance(result, Fraction) and result.denominator > LARGEST):
        raise SizeUnknown("a value in its formula exceeds 2^63 − 1")
    return result


def _power_of(base: _Number, exponent: _Number) -> _Number:
    if exponent % 1 or not -64 <= exponent <= 64 or (not base and exponent < 0):
        raise SizeUnknown("a power in its formula has an unsupported exponent")
    return base ** int(exponent)


FUNCTIONS: dict[str, Callable[..., _Number]] = {
    **dict.fromkeys(("Integer", "Identity", "ToFloat"), lambda a: a),
    **dict.fromkeys(("Div", "Rational", "IntTrueDiv", "FloatTrueDiv"), operator.truediv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    **dict.fromkeys(("Pow", "PowByNatural"), _power_of),
    **dict.fromkeys(("FloorDiv", "CleanDiv"), lambda a, b: Fraction(a // b)),
    **dict.fromkeys(("floor", "FloorToInt"), lambda a: Fraction(math.floor(a))),
    **dict.fromkeys(("ceiling", "CeilToInt"), lambda a: Fraction(math.ceil(a))),
    "TruncToInt": lambda a: Fraction(math.trunc(a)),
    "CeilDiv": lambda a, b: Fraction(-(-a // b)),
    "Add": lambda *a: sum(a, Fraction()),
    "Sub": operator.sub,
    **dict.fromkeys(("Mult", "Mul"), lambda *a: math.prod(a, start=Fraction(1))),
    "Max": lambda *a: max(a),
    "Min": lambda *a: min(a),
    "Abs": abs,
}
"""Name → evaluation of Python's operators (``ast.Mult``), and of the functions of SymPy and PyTorch."""
