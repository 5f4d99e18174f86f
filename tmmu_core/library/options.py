"""Reject unknown keyword arguments of the public functions with the closest known one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tmmu_core.base import strict

P = ParamSpec("P")
R = TypeVar("R")

SYNONYMS = {"capacities": "capacity"}
"""Other names of an option."""


def suggest_options(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function`` with a ``TypeError`` that names the closest option where a keyword is unknown."""
    parameters = inspect.signature(function).parameters
    options = [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        named = {SYNONYMS.get(name, name) if name not in parameters else name: kwargs[name] for name in kwargs}
        for name in named:
            if name not in parameters:
                hint = strict.closest_hint(name, options)
                raise TypeError(f"{function.__name__}() has no option {name!r}. {hint}")
        return function(*args, **named)  # type: ignore[arg-type]

    return checked
