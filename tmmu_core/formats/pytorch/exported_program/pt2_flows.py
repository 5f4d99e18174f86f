"""Control-flow operators of PyTorch: which arguments are state, which are scanned, and how the bodies run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tmmu_core.formats.scopes import Lay, Repeated


@dataclass(frozen=True)
class Flow:
    """An operator of ``torch.ops.higher_order``. Its arguments are bodies and groups of tensors."""

    kind: Literal["branch", "loop", "map", "scan", "call"]

    def takes(
        self, groups: Sequence[Sequence[str]], inputs: Sequence[int], outputs: Sequence[int], results: int
    ) -> bool:
        """Return whether the numbers of arguments and results agree with those of the bodies."""
        counts = {"branch": (2, 2), "loop": (2, 2), "map": (2, 1), "scan": (3, 1)}
        if self.kind != "call" and (len(groups), len(inputs)) != counts[self.kind]:
            return False
        given = sum(map(len, groups[1:] if self.kind == "branch" else groups))
        expected = [1, results] if self.kind == "loop" else [results] * len(inputs)
        states = {"loop": len(groups[0]) == results, "scan": len(groups[0]) <= results} if groups else {}
        return list(inputs) == [given] * len(inputs) and list(outputs) == expected and states.get(self.kind, True)

    def repeated(self, groups: Sequence[Sequence[str]], lays: Sequence[Lay]) -> Repeated:
        """Return the repeated body of a loop, map or scan."""
        first, *others = map(tuple, groups)
        if self.kind == "loop":
            return Repeated(lays[1], first, others[0], condition=lays[0])
        if self.kind == "map":
            return Repeated(lays[0], (), others[0], scanned=first)
        return Repeated(lays[0], first, others[1], scanned=others[0])


FLOWS: dict[str, Flow] = {
    "cond": Flow("branch"),
    "while_loop": Flow("loop"),
    "map_impl": Flow("map"),
    "scan": Flow("scan"),
    **dict.fromkeys(
        ("invoke_subgraph", "wrap", "wrap_with_set_grad_enabled", "wrap_with_autocast", "tag_activation_checkpoint"),
        Flow("call"),
    ),
}
"""Operator name → kind. Bodies of other operators (``associative_scan``, ``flex_attention``) are not planned."""
