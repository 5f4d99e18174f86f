"""Who takes over whose storage at the step of its last read: contract §1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest

from tmmu_core.graph.model import Node
from tmmu_core.judge.lives.storages import Groups
from tmmu_core.judge.runs import Run
from tmmu_core.once import cached_property

Handoff = tuple[int, str, str]
"""(step, from, to)."""


@dataclass(frozen=True)
class HandoffJudge:
    """Decides for every step who takes over whose storage. Deaths are those before any hand-off."""

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
        """Storages with a persistent member."""
        return frozenset(name for member, name in self.storage_of.items() if self.run.tensors[member].persistent)

    @cached_property
    def _last(self) -> dict[str, list[tuple[int, str]]]:
        """Of each storage the two members that die last."""
        return {
            self.storage_of[leader]: nlargest(2, ((self.death[m], m) for m in self.groups.members(leader)))
            for leader in self.groups.leaders()
        }

    def decide(self) -> tuple[tuple[Handoff, ...], tuple[tuple[int, str, str, str], ...]]:
        """Granted (step, from, to) and refused (step, from, to, condition), in step order."""
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
        """The pairs (x, y) that ``node`` permits, x last read here and not of y's storage already; x once.

        Of an x that stands at several positions every one must be permitted (contract §11).
        """
        if not node.outputs or node.inplace == "none":
            return []
        if node.inplace is None or node.inplace == "any":
            pairs = [(x, node.outputs[0]) for x in node.inputs]
        else:
            assert not isinstance(node.inplace, str)
            listed = [i for i, _ in node.inplace]
            kept = {x for i, x in enumerate(node.inputs) if i not in listed}  # read where nothing may be written
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
        """The first condition of §1 that refuses y the storage of x; empty when all hold."""
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
        # y takes over a place; a storage that is there already has one.
        if self.storage_of[y] != y or self.birth[y] != step:
            return "alias_live"
        if (self.storage_of[x], self.storage_of[y]) in self.apart:
            return "must_not_alias"
        if self.arena[self.storage_of[x]] != self.arena[self.storage_of[y]]:
            return "other_arena"
        return ""
