"""In-place reuse of an input at its last read, by contract §1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import nlargest

from tmmu_core.graph.model import Node
from tmmu_core.judge.reference.liveness.ref_storages import Groups
from tmmu_core.judge.reference.schedule import Run

Handoff = tuple[int, str, str]
"""(step, from, to)."""


@dataclass(frozen=True)
class HandoffJudge:
    """Decides the in-place reuse of every step. Deaths are those without in-place reuse."""

    run: Run
    birth: Mapping[str, int]
    death: Mapping[str, int]
    saved: frozenset[str]
    last_read: Mapping[str, int]
    storage_of: Mapping[str, str]
    groups: Groups
    arena: Mapping[str, str]
    """Storage → arena."""
    apart: frozenset[tuple[str, str]]

    @cached_property
    def _persistent(self) -> frozenset[str]:
        """The storages with a persistent member."""
        return frozenset(name for member, name in self.storage_of.items() if self.run.tensors[member].persistent)

    @cached_property
    def _last(self) -> dict[str, list[tuple[int, str]]]:
        """The two members of each storage with the latest deaths."""
        return {
            self.storage_of[leader]: nlargest(2, ((self.death[m], m) for m in self.groups.members(leader)))
            for leader in self.groups.leaders()
        }

    def decide(self) -> tuple[tuple[Handoff, ...], tuple[tuple[int, str, str, str], ...]]:
        """Return the granted (step, from, to) and the refused (step, from, to, condition), by step."""
        granted: list[Handoff] = []
        refused: list[tuple[int, str, str, str]] = []
        for position, node_id in enumerate(self.run.order):
            step, node = self.run.step_of(position), self.run.nodes[node_id]
            taken = False
            for x, y in self.candidates(step, node):
                condition = self.refusal(step, node, x, y) or ("already_taken" if taken else "")
                if condition:
                    refused.append((step, x, y, condition))
                else:
                    granted.append((step, x, y))
                    taken = True
        return tuple(granted), tuple(refused)

    def candidates(self, step: int, node: Node) -> list[tuple[str, str]]:
        """Return the pairs (x, y) that ``node`` permits: x is last read here and not in y's storage; each x once.

        Where x is at several positions, each of them must be permitted (contract §11).
        """
        if not node.outputs or node.inplace == "none":
            return []
        if node.inplace is None or node.inplace == "any":
            pairs = [(x, node.outputs[0]) for x in node.inputs]
        else:
            assert not isinstance(node.inplace, str)
            listed = [i for i, _ in node.inplace]
            kept = {
                x for i, x in enumerate(node.inputs) if i not in listed
            }  # also read at a position without permission
            pairs = [(node.inputs[i], node.outputs[o]) for i, o in node.inplace if node.inputs[i] not in kept]
        first_mention: dict[str, str] = {}
        for x, y in pairs:
            if x not in first_mention:
                first_mention[x] = y
        return [
            (x, y)
            for x, y in first_mention.items()
            if self.last_read[x] == step and self.storage_of[x] != self.storage_of[y]
        ]

    def refusal(self, step: int, node: Node, x: str, y: str) -> str:
        """Return the first condition of §1 that forbids y to reuse x; empty where all hold."""
        if len(node.outputs) != 1:
            return "several_outputs"
        if self.storage_of[x] in self._persistent:
            return "persistent"
        if x in self.run.outputs:
            return "graph_output"
        if x in self.saved:
            return "saved_for_backward"
        if any(death > step for death, member in self._last[self.storage_of[x]] if member != x):
            return "alias_live"
        # A storage that exists before this step already has an offset.
        if self.storage_of[y] != y or self.birth[y] != step:
            return "alias_live"
        if (self.storage_of[x], self.storage_of[y]) in self.apart:
            return "must_not_alias"
        if self.arena[self.storage_of[x]] != self.arena[self.storage_of[y]]:
            return "other_arena"
        return ""
