"""One changed function put in the place of the running one, without importing anything anew."""

from __future__ import annotations

import gc
from types import CodeType, FunctionType

from tests.mutation.sites import Site

Running = dict[tuple[str, str, int], list[FunctionType]]
"""File, qualified name and first line → the functions that hold this code."""


def running() -> Running:
    """Every function that there is. Looked for once: to look at all objects is to copy their pages in every fork."""
    found: Running = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType):
            code = thing.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(thing)
    return found


def patch(site: Site, path: str, text: str, functions: Running) -> bool:
    """Give every live function of ``path`` that holds the mutant its changed code; whether there was one.

    ``text`` is the module as it stands. A mutant in a module's own lines has been run already, and needs a process of
    its own. A compiled loop no longer asks its function: here loops run as plain Python (``covering.without_numba``).
    """
    if not site.function:
        return False
    changed = _functions(site.mutate(text), path)
    whole = _functions(text, path)
    differ = {key for key, code in changed.items() if key in whole and code != whole[key]}
    if not differ or len(changed) != len(whole):
        return False
    found = [(function, changed[key]) for key in differ for function in functions.get((path, *key), ())]
    if any(function.__code__.co_freevars != code.co_freevars for function, code in found):
        return False
    for function, code in found:
        function.__code__ = code
    return bool(found)


def _functions(text: str, path: str) -> dict[tuple[str, int], CodeType]:
    return {(code.co_qualname, code.co_firstlineno): code for code in _inside(compile(text, path, "exec"))}


def _inside(code: CodeType) -> list[CodeType]:
    """The functions of a module, the methods of its classes, and what they make: it may live in a table by now."""
    found = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_class = constant.co_names[:2] == ("__name__", "__module__")
            found += [*([] if is_class else [constant]), *_inside(constant)]
    return found
