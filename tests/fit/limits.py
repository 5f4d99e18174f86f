"""How much fitting tries: counts of what is asked, the limits as they stand, and limits close enough to be met."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages
from runpy import run_path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.build import graph, node, tensor
from tmmu_core import fit as fit_package
from tmmu_core.fit.asking import Question
from tmmu_core.fit.recompute.model import RecomputeModel, recompute_model
from tmmu_core.fit.recompute.simulate import Choice, Run, run
from tmmu_core.graph.model import Node, Tensor

Row = dict[str, Any]

COUNTED = {
    "tmmu_core.fit.asking": ("solve", "arena_problems"),
    "tmmu_core.fit.candidates": ("applied",),
    "tmmu_core.fit.fitting": ("extents_of", "order_move"),
    "tmmu_core.fit.offload": ("run", "boundary"),
    "tmmu_core.fit.order.searching": ("measure", "improved", "beam", "walk_best_first"),
    "tmmu_core.fit.order.windows": ("measure", "walk_best_first"),
    "tmmu_core.fit.recompute.moves": ("run",),
    "tmmu_core.fit.recompute.search": ("run", "cheapest", "boundary"),
    "tmmu_core.fit.recompute.unwrite": ("recompute_model",),
    "tmmu_core.fit.whatif": ("extents_of",),
}
"""Module → what it asks of others, counted: an answer after as many steps."""


@contextmanager
def work() -> Iterator[Callable[[], str]]:
    """Counts what is asked inside; says it in one line."""
    done: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **more: Any) -> Any:
            done[name] += 1
            return function(*given, **more)

        return counted

    with ExitStack() as patched:
        for place, names in COUNTED.items():
            module = import_module(place)
            for name in names:
                short = f"{place.rpartition('.')[2]}.{name}"
                patched.enter_context(patch.object(module, name, counting(short, getattr(module, name))))
        yield lambda: " ".join(f"{name} {count}" for name, count in sorted(done.items()))


CLOSE: dict[str, dict[str, Any]] = {
    "tmmu_core.fit.fitting": {"MOST_TRIED": 2, "MOST_SINGLY": 2, "SINGLY_UP_TO": 11, "ENUMERATED_UP_TO": 6},
    "tmmu_core.fit.offload": {"TRIED": 2, "KEPT": 1, "SINGLES": 2, "LEAST": 512},
    "tmmu_core.fit.order.baselines": {"THRESHOLD": 300},
    "tmmu_core.fit.order.beam": {"TRIED": 40},
    "tmmu_core.fit.order.searching": {"WALKED_UP_TO": 11, "PROOF": 12, "SMALL": 9, "PROOF_OF_SMALL": 30},
    "tmmu_core.fit.order.windows": {"REACHES": (1, 2, 3), "BUDGET": 9},
    "tmmu_core.fit.ordering": {"ENUMERATED_UP_TO": 9, "MOST_ORDERS": 3},
    "tmmu_core.fit.recompute.cut": {"FINEST": 1 << 8},
    "tmmu_core.fit.recompute.deeper": {"STEPS_LOOKED_AT": 2, "TRIMMED": 1, "SINGLY": 2},
    "tmmu_core.fit.recompute.model": {"HUB": 2},
    "tmmu_core.fit.recompute.moves": {"SINGLES": 2, "ON_THE_WAY": 2, "ASKED_EVERY": 3},
    "tmmu_core.fit.recompute.search": {
        "CLIMBS": 2,
        "EXHAUSTED": 3,
        "TRIALS": 60,
        "TRIALS_OF": 9,
        "LEAST_TRIALS": 9,
        "DEAREST": 2,
        "WORTH_TRYING": 2,
        "LADDER": (1, 4, 16, 64, 4096),
    },
}
"""Limits that no small graph comes to, brought where it does."""


@contextmanager
def close_limits() -> Iterator[None]:
    """Inside, effort ends early."""
    with ExitStack() as patched:
        for place, limits in CLOSE.items():
            for name, value in limits.items():
                patched.enter_context(patch.object(import_module(place), name, value))
        yield


def rooms_with_limits() -> list[str]:
    """The modules of fitting above whose functions a number stands."""
    names = [each.name.removeprefix("tmmu_core.fit.") for each in walk_packages(fit_package.__path__, "tmmu_core.fit.")]
    return [name for name in names if limits_of(name)]


def limits_of(room: str) -> Row:
    """Every number that stands above the functions of a module, as it is when the module is run anew."""
    file = find_spec(f"tmmu_core.fit.{room}").origin  # type: ignore[union-attr]
    assert file is not None
    source = Path(file).read_text()
    row: Row = {}
    for name, value in sorted(run_path(file).items()):
        first = value[0] if isinstance(value, tuple) and value else value
        is_number = isinstance(first, int | np.integer | tuple)
        if name.isupper() and is_number and re.search(rf"^(?!from|import).*\b{name}\b.* = ", source, re.MULTILINE):
            row[name] = str(value)
    return row


SIDE = 96


def long_step(length: int, reads: int, outputs: int, side: int = SIDE) -> RecomputeModel:
    """A chain there and back; each node of it reads ``reads`` inputs more and makes ``outputs``; beside it ``side``
    nodes of one input, which are read at the end as well.
    """
    inputs = [f"x{k}" for k in range(reads + 1)]
    tensors: list[Tensor] = [tensor(name, role="input") for name in inputs]
    nodes: list[Node] = []

    def add(name: str, what: list[str], makes: list[str], phase: str) -> None:
        tensors.extend(tensor(each) for each in makes)
        nodes.append(node(name, " ".join(what), " ".join(makes), instr="Add", inplace="none", phase=phase))

    for k in range(side):
        add(f"s{k}", inputs[:1], [f"s{k}"], "forward")
    for k in range(length):
        add(
            f"f{k}",
            [f"t{k - 1}" if k else "x0", *inputs[1:]],
            [f"t{k}", *(f"u{k}.{o}" for o in range(1, outputs))],
            "forward",
        )
    add("g", [f"t{length - 1}", *(f"s{k}" for k in range(side))], ["g"], "forward")
    for k in reversed(range(length)):
        add(f"b{k}", [nodes[-1].outputs[0], f"t{k}"], [f"g{k}"], "backward")
    for k in range(side):
        add(f"z{k}", [nodes[-1].outputs[0], f"s{k}"], [f"z{k}"], "backward")
    return recompute_model(
        Question(
            graph(
                tensors, nodes, " ".join(inputs), nodes[-1].outputs[0], execution_order=tuple(n.node_id for n in nodes)
            )
        )
    )


def long_runs() -> Row:
    """The longest runs that are not given up, by what there is too much of: steps, lives, operands, copies."""
    row: Row = {}
    for name, length, reads, outputs in (
        ("steps", 60, 0, 1),
        ("lives", 40, 0, 4),
        ("operands", 40, 3, 1),
        ("copies", 120, 20, 1),
    ):
        model = long_step(length, reads, outputs)
        after = partial(dropped, model, away=name == "copies")
        chain = _most(partial(after, side=0), length)
        side = _most(partial(after, chain), SIDE)
        found = after(chain, side)
        row[name] = [chain, side, found.extra_steps, len(found.lives.of), int(found.lives.read_ptr[-1]), found.total]
    return row


def _most(tried: Callable[[int], Run], most: int) -> int:
    """The greatest number up to which a run is valid."""
    return max(many for many in range(most + 1) if tried(many).valid)


def dropped(model: RecomputeModel, chain: int, side: int, *, away: bool = False) -> Run:
    """The first of the chain (or else of the inputs, which leave) and of those beside it are dropped after each use."""
    choice = Choice.nothing(model)
    wanted = {*(f"{'x' if away else 't'}{k}" for k in range(chain)), *(f"s{k}" for k in range(side))}
    gone = np.array([model.name_of(s) in wanted for s in range(len(model.size))], np.bool_)
    choice.used[:] = gone[model.in_idx]
    choice.again[:] = gone[model.in_idx] & (not away)
    choice.born[:] = gone[model.out_idx]
    choice.away[:] = gone & away
    return run(model, choice)
