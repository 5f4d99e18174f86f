"""The sizes of an exported program, open ones included, read without a formula ever being run.

A program writes an open size as a formula of SymPy's, ``Mul(Integer(8), Symbol('s77', positive=True))`` or ``8*s77``,
beside the number that it had in the example. SymPy's own reader evaluates such text as Python; this one knows whole
numbers, symbols, brackets and the dozen functions below, and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import msgspec

from tmmu_core.base.struct_types import register_types

LONGEST_FORMULA = 2_000
DEEPEST_FORMULA = 40
LARGEST = 2**63 - 1


class SizeUnknown(Exception):
    """The formula cannot be evaluated; ``str`` is the reason."""


class Hint(msgspec.Struct, frozen=True):
    """Value of a formula in the example."""

    as_int: int | None = None


class Formula(msgspec.Struct, frozen=True):
    """An open size."""

    expr_str: str = ""
    hint: Hint | None = None


class Size(msgspec.Struct, frozen=True):
    """One dimension, stride or offset: a number, or a formula."""

    as_int: int | None = None
    as_expr: Formula | None = None


register_types(Hint, Formula, Size)


def number(size: Size, symbols: Mapping[str, int], elsewhere: bool = False) -> int:
    """Return the size in the example: the recorded value, else the formula at ``symbols``.

    ``elsewhere``: the symbols differ from the example, so the recorded value is not used.
    Raises :class:`SizeUnknown`.
    """
    if size.as_int is not None:
        found = size.as_int
    elif size.as_expr is None:
        raise SizeUnknown("it is neither a number nor a formula")
    elif not elsewhere and size.as_expr.hint is not None and size.as_expr.hint.as_int is not None:
        found = size.as_expr.hint.as_int
    else:
        found = evaluated(size.as_expr.expr_str, symbols)
    if not 0 <= found <= LARGEST:
        raise SizeUnknown(f"it is {_short(str(found))}, and a size is from 0 to 2^63 − 1")
    return found


def symbol_in(size: Size) -> tuple[str, int] | None:
    """The symbol that this size is, with its number in the example, where it is one and the number is there."""
    formula = size.as_expr
    if formula is None or formula.hint is None or formula.hint.as_int is None:
        return None
    found = re.fullmatch(r"Symbol\('(\w{1,80})'[\w=, ]{0,200}\)|([A-Za-z_]\w{0,80})", formula.expr_str)
    return (found[1] or found[2], formula.hint.as_int) if found else None


def hanging_on_data(size: Size) -> list[str]:
    """Return the data-dependent symbols of a size (``u0`` …)."""
    formula = size.as_expr
    if formula is None or (formula.hint is not None and formula.hint.as_int is not None):
        return []
    return re.findall(r"\bu\d{1,9}\b", formula.expr_str[:LONGEST_FORMULA])


def evaluated(formula: str, symbols: Mapping[str, int]) -> int:
    """Evaluate ``formula`` to a whole number. Raises :class:`SizeUnknown`."""
    if len(formula) > LONGEST_FORMULA:
        raise SizeUnknown(f"its formula is longer than {LONGEST_FORMULA} characters")
    value = _Reading(formula, symbols).whole()
    if value.denominator != 1:
        raise SizeUnknown(f"{_short(formula)} comes to no whole number")
    return value.numerator


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|('[^'\\]*')|(\*\*|//|[-+*/%(),=]))")


class _Reading:
    """Recursive descent over the tokens of one formula; every value is bounded, so every step is cheap."""

    def __init__(self, formula: str, symbols: Mapping[str, int]) -> None:
        self.formula, self.symbols, self.at, self.depth = formula, symbols, 0, 0
        self.tokens: list[str] = []
        end, stripped = 0, formula.rstrip()
        while end < len(stripped):
            found = _TOKEN.match(stripped, end)
            if found is None:
                raise SizeUnknown(f"{_short(formula)} is no formula of sizes")
            self.tokens.append(found[0].strip())
            end = found.end()

    def whole(self) -> Fraction:
        value = self._sum()
        if self._next():
            raise self._strange()
        return value

    def _next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, *wanted: str) -> str:
        token = self._next()
        if wanted and token not in wanted:
            return ""
        self.at += 1
        return token

    def _strange(self) -> SizeUnknown:
        return SizeUnknown(f"{_short(self.formula)} holds {_short(self._next() or 'an end')}, which sizes do not")

    def _sum(self) -> Fraction:
        self.depth += 1
        if self.depth > DEEPEST_FORMULA:
            raise SizeUnknown(f"its formula is nested more than {DEEPEST_FORMULA} deep")
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            value = self._bounded(value + other if sign == "+" else value - other)
        self.depth -= 1
        return value

    def _product(self) -> Fraction:
        value = self._power()
        while sign := self._take("*", "/", "//", "%"):
            value = self._bounded(_PAIRWISE[sign](value, self._divisor(sign, self._power())))
        return value

    def _divisor(self, sign: str, value: Fraction) -> Fraction:
        if sign != "*" and not value:
            raise SizeUnknown(f"{_short(self.formula)} divides by 0")
        return value

    def _power(self) -> Fraction:
        if self._take("-"):
            return -self._power()
        value = self._atom()
        if self._take("**"):
            value = _power_of(value, self._atom())
        return self._bounded(value)

    def _atom(self) -> Fraction:
        token = self._take()
        if token == "(":
            value = self._sum()
            if not self._take(")"):
                raise self._strange()
            return value
        if token.isdigit():
            return self._bounded(Fraction(int(token)))
        if token == "Symbol" and self._take("("):
            return self._symbol()
        if token.isidentifier():
            return self._call(token) if self._take("(") else self._known(token)
        raise self._strange()

    def _symbol(self) -> Fraction:
        value = self._known(self._take().strip("'"))
        while self._next() not in (")", ""):  # assumptions: positive=True, integer=True
            self.at += 1
        if not self._take(")"):
            raise self._strange()
        return value

    def _known(self, name: str) -> Fraction:
        if name not in self.symbols:
            raise SizeUnknown(f'the size "{_short(name)}" stands open, and no example says what it is')
        return Fraction(self.symbols[name])

    def _call(self, name: str) -> Fraction:
        arguments = [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        if not self._take(")") or name not in FUNCTIONS:
            raise SizeUnknown(f"{_short(self.formula)} holds {_short(name)}, which sizes do not")
        try:
            return self._bounded(FUNCTIONS[name](*arguments))
        except (TypeError, ZeroDivisionError) as error:
            raise SizeUnknown(f"{_short(self.formula)} gives {_short(name)} what it does not take") from error

    def _bounded(self, value: Fraction) -> Fraction:
        if abs(value.numerator) > LARGEST or value.denominator > LARGEST:
            raise SizeUnknown(f"{_short(self.formula)} passes 2^63 − 1")
        return value


def _power_of(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > 64 or (not base and exponent < 0):
        raise SizeUnknown("it is a power that sizes do not hold")
    return base ** int(exponent)


_PAIRWISE: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: Fraction(a // b),
    "%": lambda a, b: a % b,
}
FUNCTIONS: dict[str, Callable[..., Fraction]] = {
    "Integer": lambda a: a,
    "Rational": lambda a, b: a / b,
    "Add": lambda *a: sum(a, Fraction()),
    "Mul": lambda *a: _product_of(a),
    "Pow": _power_of,
    "Max": lambda *a: max(a),
    "Min": lambda *a: min(a),
    "Abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceiling": lambda a: Fraction(math.ceil(a)),
    "FloorToInt": lambda a: Fraction(math.floor(a)),
    "CeilToInt": lambda a: Fraction(math.ceil(a)),
    "TruncToInt": lambda a: Fraction(math.trunc(a)),
    "FloorDiv": lambda a, b: Fraction(a // b),
    "CleanDiv": lambda a, b: Fraction(a // b),
    "CeilDiv": lambda a, b: Fraction(-(-a // b)),
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "IntTrueDiv": lambda a, b: a / b,
    "ToFloat": lambda a: a,
    "Identity": lambda a: a,
}
"""Function name → its evaluation; those of SymPy and PyTorch's additions."""


def _product_of(values: tuple[Fraction, ...]) -> Fraction:
    product = Fraction(1)
    for value in values:
        product *= value
        if abs(product.numerator) > LARGEST or product.denominator > LARGEST:
            raise SizeUnknown("a product in it passes 2^63 − 1")
    return product


def _short(text: Any) -> str:
    return f"“{text}”" if len(text) <= 60 else f"“{text[:57]}…”"
