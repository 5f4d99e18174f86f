"""Births and deaths of tensors before in-place writes and in-place reuse, by contract §1 and §2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tmmu_core.judge.reference.schedule import Run
from tmmu_core.judge.reference.schedule.ref_tensors import refuse


class Ranges(NamedTuple):
    """By tensor id: births, deaths, steps of the last read; and the tensors saved for the backward pass."""

    birth: Mapping[str, int]
    death: Mapping[str, int]
    saved: frozenset[str]
    last_read: Mapping[str, int]


def births(run: Run) -> dict[str, int]:
    """Return the births of planned tensors: written ones, persistent ones, and views of these."""
    birth: dict[str, int] = {}
    for name, tensor in run.tensors.items():
        if tensor.persistent:  # persistent tensors: [0, T)
            birth[name] = 0
        elif name in run.written_at:  # its producer's step; a graph input is produced by @inputs at step 0
            birth[name] = run.written_at[name]
    written = {name for node in run.graph.nodes for name in node.outputs}
    views = {name: tensor.view.base_tensor_uid for name, tensor in run.tensors.items() if tensor.view}
    loose = {name: base for name, base in views.items() if name not in birth and name not in written}
    base_of: dict[str, str] = {}
    for name in loose:
        # A view that no node writes has the birth of its root, if its base is planned.
        through = []
        at = name
        while at in loose and at not in base_of:
            through.append(at)
            at = loose[at]
        base_of |= dict.fromkeys(through, base_of.get(at, at))
    made = dict(birth)
    return made | {name: made[run.root[name]] for name, at in base_of.items() if at in made and run.root[name] in made}


def saved_tensors(run: Run) -> frozenset[str]:
    """Return the tensors saved for the backward pass (§1–§3); saving a view saves its root."""
    if not run.retain:
        return frozenset()
    marked = [name for name, tensor in run.tensors.items() if tensor.saved_for_backward]
    return frozenset(marked) | {run.root[name] for name in marked}


def refuse_dangling(run: Run, birth: Mapping[str, int], last_read: Mapping[str, int]) -> None:
    """Raise ``InvalidIrShapes`` for a read or output that nothing produces (§2)."""
    for name in last_read:  # in order of steps, then operands
        if name not in birth:
            refuse("dangling_input", tensor=name, node_id=run.node_name(run.reads[name][0]))
    written = {name for node in run.graph.nodes for name in node.outputs}
    for name in sorted(run.graph.outputs):
        if name not in birth and name not in written:
            refuse("never_produced", tensor=name, node_id="")


def deaths(run: Run, birth: Mapping[str, int], saved: frozenset[str], last_read: Mapping[str, int]) -> dict[str, int]:
    """Return the half-open ends of live ranges, before in-place writes and in-place reuse."""
    death: dict[str, int] = {}
    for name, born in birth.items():
        held = saved if run.mode == "forward" else frozenset()  # mode forward holds saved tensors to T
        if run.tensors[name].persistent or name in run.outputs or name in held:
            death[name] = run.end
        elif name in last_read:  # last read at step k, without in-place reuse: k + 1
            death[name] = last_read[name] + 1
        else:  # dead tensor: [b, b + 1), never empty
            death[name] = born + 1
    return death
