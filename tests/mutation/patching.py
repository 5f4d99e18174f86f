"""One changed function put in the place of the running one, without importing anything anew."""

from __future__ import annotations

import gc
from types import CodeType, FunctionType

from tests.mutation.sites import Site


def patch(site: Site, path: str, text: str) -> bool:
    """Give every live function of ``path`` that holds the mutant its changed code; whether there was one.

    ``text`` is the module as it stands. A mutant in a module's own lines has been run already, and a compiled loop no
    longer asks its function: both need a process of their own.
    """
    if not site.function or "njit" in text:
        return False
    changed = {
        (code.co_qualname, code.co_firstlineno): code for code in _inside(compile(site.mutate(text), path, "exec"))
    }
    whole = {(code.co_qualname, code.co_firstlineno): code for code in _inside(compile(text, path, "exec"))}
    differ = {key for key, code in changed.items() if key in whole and code != whole[key]}
    if not differ or len(changed) != len(whole):
        return False
    patched = 0
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename == path:
            key = thing.__code__.co_qualname, thing.__code__.co_firstlineno
            if key in differ and thing.__code__.co_freevars == changed[key].co_freevars:
                thing.__code__ = changed[key]
                patched += 1
    return patched > 0


def _functions(text: str, path: str) -> dict[tuple[str, int], CodeType]:
    return {(code.co_qualname, code.co_firstlineno): code for code in _inside(compile(text, path, "exec"))}


def _inside(code: CodeType) -> list[CodeType]:
    """The functions of a module and the methods of its classes, not what stands inside of a function."""
    found = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_class = constant.co_names[:2] == ("__name__", "__module__")
            found += _inside(constant) if is_class else [constant]
    return found
