"""Restore the states of random generators after a trace, and reject a forward pass that sets them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from tmmu_core.base.errors import UnreadableInput

FIRST_SEED = 0x7E57_5EED  # first seed of a trace; a forward pass is unlikely to set it


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


class RejectSeeding(TorchFunctionMode):
    """Mode that raises ``UnreadableInput`` if code sets the state of a default generator, at the next operator or exit.

    The mode sets a new seed at each operator, so it also detects code that restores an earlier state. The seeds change
    no result, because a trace draws no numbers.
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
