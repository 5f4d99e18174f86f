"""State that a trace of a module restores: the module's attributes, and the random generators."""

import contextlib
import inspect
import weakref
from collections.abc import Collection, Iterator
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only

from tmmu_core.base.errors import UnreadableInput

FIRST_SEED = 0x7E57_5EED  # first seed of a trace; a forward pass is unlikely to set it
_OF_EVERY_MODULE = {*torch.nn.Module().__dict__, "_compiled_call_impl"} - {"training"}  # attributes of ``nn.Module``
_REGISTERED = ("parameters", "buffers", "modules")
_PLAIN = (bool, int, float, complex, str, type(None))


@contextlib.contextmanager
def state_restored(module: torch.nn.Module) -> Iterator[dict[str, tuple[Any, Any]]]:
    """Context manager: restore the parameters, buffers, submodules and own attributes of the module and its parts.

    Own attributes are those that ``nn.Module`` does not define. Lists and dicts get their items back. The yielded dict
    is filled on exit: path of a changed own attribute → (value on entry, value on exit); ``None`` if it did not exist.
    """
    before = [
        (path, part, _attributes(part), [(d, dict(d)) for d in (part._parameters, part._buffers, part._modules)])
        for path, part in module.named_modules()
    ]
    changed: dict[str, tuple[Any, Any]] = {}
    try:
        yield changed
    finally:
        for path, part, attributes, registered in before:
            for by_name, values in registered:
                by_name.clear()
                by_name.update(values)
            now = _attributes(part)
            for name in {**attributes, **now}:
                old, new = attributes.get(name, (None, None)), now.get(name, (None, None))
                if _is_same(old[1], new[1]) and (name in attributes) == (name in now):
                    continue
                changed[f"{path}.{name}".removeprefix(".")] = old[1], new[1]
                part.__dict__[name] = _restored(*old)
                if name not in attributes:
                    del part.__dict__[name]


@contextlib.contextmanager
def state_set(module: torch.nn.Module, changed: dict[str, tuple[Any, Any]]) -> Iterator[None]:
    """Context manager: set attributes to the second values in ``changed``, with new tensors; restore on exit."""
    with state_restored(module):
        for path, (_, new) in changed.items():
            parent, _, name = path.rpartition(".")
            copied = tree_map_only(torch.Tensor, lambda t: torch.empty(t.shape, dtype=t.dtype, device=t.device), new)
            module.get_submodule(parent).__dict__[name] = copied
        yield


@contextlib.contextmanager
def attributes_read(module: torch.nn.Module) -> Iterator[dict[str, set[str]]]:
    """Context manager: yield path of a part → names of its own attributes that are read, also missing ones."""
    paths = {id(part): path for path, part in module.named_modules()}
    read: dict[str, set[str]] = {}

    def getattribute(self: torch.nn.Module, name: str) -> Any:
        if name not in _OF_EVERY_MODULE and id(self) in paths:
            own = object.__getattribute__(self, "__dict__")
            of_class = hasattr(type(self), name) or any(name in own[f"_{kind}"] for kind in _REGISTERED)
            if name in own or not of_class:
                read.setdefault(paths[id(self)], set()).add(name)
        return object.__getattribute__(self, name)

    with mock.patch.object(torch.nn.Module, "__getattribute__", getattribute):
        yield read


def text_of(value: Any, constants: Collection[int]) -> str:
    """Return a text of an attribute's value. Values that give different traces have different texts.

    The text contains the numbers, texts and tensors in a container, in the fields of an object, or in the outer
    variables of a function. A tensor has the text "" if the address of its storage is not in ``constants``.
    """
    if type(value) in _PLAIN or isinstance(value, weakref.ref):
        return repr(value) * (type(value) in _PLAIN)
    if isinstance(value, torch.Tensor):
        is_constant = value.layout is torch.strided and value.untyped_storage()._cdata in constants
        return "the tensor of the fit" * is_constant
    known: tuple[Any, ...] = (*_PLAIN, torch.Tensor, torch.nn.Module)
    name, fields = f"{type(value).__name__} at {id(value):#x} ", getattr(value, "__dict__", {})
    if isinstance(value, dict | list | tuple):
        name, known, fields = "", (object,), value if isinstance(value, dict) else dict(enumerate(value))
    elif isinstance(value, torch.nn.Module | type):
        fields = {"training": getattr(value, "training", None)}
    elif isinstance(value, FunctionType):
        variables = inspect.getclosurevars(value)
        fields = {**variables.globals, **variables.nonlocals}
    texts = [(key, text_of(each, constants)) for key, each in fields.items() if isinstance(each, known)]
    return f"{name}({', '.join(f'{key}={text}' for key, text in texts if text)})"


def has_tensors(value: Any) -> bool:
    """Return whether an attribute contains tensors or weak references (``nn.GRU`` has them to its weights)."""
    return any(isinstance(leaf, (torch.Tensor, weakref.ref)) for leaf in tree_leaves(value))


def _attributes(part: torch.nn.Module) -> dict[str, tuple[Any, Any]]:
    """Return name → (value, copy of its lists and dicts) of the attributes that ``nn.Module`` does not define."""
    own = {name: value for name, value in part.__dict__.items() if name not in _OF_EVERY_MODULE}
    return {name: (value, tree_map(lambda leaf: leaf, value)) for name, value in own.items()}


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two values have the same structure, and identical leaves or equal numbers or texts."""
    (leaves, kind), (others, other_kind) = tree_flatten(old), tree_flatten(new)
    return kind == other_kind and all(
        one is other or (type(one) is type(other) and isinstance(one, (int, float, str)) and one == other)
        for one, other in zip(leaves, others, strict=True)
    )


def _restored(value: Any, items: Any) -> Any:
    """Put ``items`` back into the list or dict ``value`` and return it; return ``items`` for another value."""
    if isinstance(value, list):
        value[:] = items
    elif isinstance(value, dict) and items is not value:  # ``tree_map`` copies no dict of a user's class
        value.clear()
        value.update(items)
    else:
        return items
    return value


def default_generators() -> tuple[torch.Generator, ...]:
    """Return the default generators of the CPU and, if it is in use, of the accelerator."""
    return (torch.default_generator, *getattr(torch.get_device_module(), "default_generators", ()))


@contextlib.contextmanager
def random_state_kept(module: torch.nn.Module) -> Iterator[None]:
    """Context manager: restore the states of the default generators and of those in attributes of ``module``."""
    attributes = [leaf for part in module.modules() for leaf in tree_leaves(dict(vars(part)))]
    module_generators = [leaf for leaf in attributes if isinstance(leaf, torch.Generator)]
    states = [(generator, generator.get_state()) for generator in (*default_generators(), *module_generators)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


class ForwardMode(TorchFunctionMode):
    """Mode that raises ``UnreadableInput`` if code sets the state of a default generator.

    It raises at the next operator, or on exit. It sets a new seed at each operator, so it also detects code that
    restores an earlier state. The seeds change no result, because a trace draws no numbers. ``tensor.data = value``
    (of the same shape) writes to the tensor in this mode, because functional tensors ignore the assignment.
    """

    seed = FIRST_SEED

    def __enter__(self) -> Any:
        self._set_seed()
        return super().__enter__()

    def __exit__(self, kind: Any, *rest: Any) -> None:
        super().__exit__(kind, *rest)
        if kind is None:
            self._check()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.compiler.is_compiling():  # PyTorch compiles bodies of control flow with this mode
            self._check()
            self.seed += 1
            self._set_seed()
        if func == torch.Tensor.data.__set__ and args[0].shape == args[1].shape:
            return args[0].data.copy_(args[1])
        return func(*args, **(kwargs or {}))

    def _set_seed(self) -> None:
        self.generators = default_generators()  # each time, because the forward pass may begin to use the accelerator
        for generator in self.generators:
            generator.manual_seed(self.seed)

    def _check(self) -> None:
        for generator in self.generators:
            if generator.initial_seed() != self.seed:
                what = f"the forward pass sets the random generator of {str(generator.device)!r} before this operator."
                raise UnreadableInput(what, hint="Set it before each step, outside of the module.")
