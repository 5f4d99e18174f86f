# what needs PyTorch is imported behind the question whether it is there
"""The checkpoint policy in PyTorch: the same gradients, and the bytes held between the passes go down as planned."""

from __future__ import annotations

import gc
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tmmu_core.fit.applying import applied
from tmmu_core.fit.asking import Question
from tmmu_core.fit.policy import checkpoint_policy, kept_calls
from tmmu_core.fit.recompute import recompute_to
from tmmu_core.fit.recompute.simulate import run
from tmmu_core.fit.recompute.unwrite import unwritten
from tmmu_core.graph.importers.torch import import_torch

pytestmark = pytest.mark.torch


class Held(TorchDispatchMode):
    """Every storage that an operator made inside, by whether it is still there."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self.made.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        return result

    @property
    def bytes(self) -> int:
        gc.collect()
        return sum(size for ref, size in self.made.values() if not ref.expired())


def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8)
    )


def held_and_gradients(call: Any, model: nn.Module, x: torch.Tensor) -> tuple[int, list[torch.Tensor]]:
    model.zero_grad()
    with Held() as held:
        loss = call(x).sum()
    between = held.bytes
    loss.backward()
    return between, [parameter.grad.clone() for parameter in model.parameters()]


def test_a_module_under_the_policy_holds_less_and_gives_the_same_gradients() -> None:
    model, x = module(), torch.randn(512, 64)
    question = Question(import_torch(model, (x,), loss=lambda y: y.sum()))
    base, begun = unwritten(question)
    whole = run(base, begun).total
    moves = recompute_to(question, whole - 700_000)
    assert moves is not None
    fitted = applied(question, moves).graph
    names: dict[str, Any] = {}
    exec(compile(checkpoint_policy(question.graph, fitted), "policy.py", "exec"), names)

    before, plain = held_and_gradients(model, model, x)
    after, again = held_and_gradients(names["checkpointed"](model), model, x)
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))
    print(f"held between the passes: {before:,} B before, {after:,} B after; kept {kept_calls(question.graph, fitted)}")
    assert after <= before - 500_000


def test_a_policy_that_keeps_all_that_is_read_holds_no_less() -> None:
    model, x = module(), torch.randn(512, 64)
    graph = import_torch(model, (x,), loss=lambda y: y.sum())
    names: dict[str, Any] = {}
    exec(compile(checkpoint_policy(graph, graph), "policy.py", "exec"), names)
    before, plain = held_and_gradients(model, model, x)
    after, again = held_and_gradients(names["checkpointed"](model), model, x)
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))
    assert abs(after - before) < 20_000
