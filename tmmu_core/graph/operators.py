"""Operator names: their parts, and properties from the operator table (:mod:`.operator_table`).

Every spelling of an operator gives the same properties: ``aten::mul.Tensor``, ``torch.ops.aten.mul``, ``aten.mul_``,
``ai.onnx::Mul``, ``stablehlo.multiply``, ``TFL.MUL``, ``MUL``. A name of an unlisted namespace is another
operator with unknown properties.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from tmmu_core.graph.operator_table import ROWS

Needs = Literal["nothing", "inputs", "outputs", "both", "mask"]

HLO = frozenset(("stablehlo", "mhlo", "chlo", "hlo", "xla", "lax", "vhlo"))
ATEN = frozenset(("aten", "prims", "prim", "torch", "ops", "executorch", "dimorderops", "rngprims", "edge"))
COMMUNICATION = frozenset(
    ("c10d", "c10dfunctional", "distributed", "dist", "nccl", "rccl", "gloo", "mpi", "horovod", "symmmem", "dtensor")
)
OTHERS = frozenset(
    (
        *("ai", "onnx", "ml", "training", "preview", "com", "microsoft", "ms", "internal", "nchwc", "nhwc", "org"),
        *("pytorch", "pkg", "onnxscript", "torchlib", "tfl", "tf", "tflite", "tensorflow", "builtin", "rawops", "jax"),
        *("numpy", "np", "jnp", "nn", "functional", "f", "modules", "module", "activation", "special", "math"),
        *("linalg", "operator", "builtins", "keras", "layers", "exir", "dialects", "quantized", "quantizeddecomposed"),
        *("higherorder", "inductor", "tosa", "tensor", "tensorbase", "c", "variablefunctions"),
    )
)
"""Words of namespaces whose operators are those of the table."""
NAMESPACES = HLO | ATEN | COMMUNICATION | OTHERS

GRADIENT = "_GRAD"
"""Suffix of the synthesized backward step of an operator."""
OVERLOADS = (
    *("default", "Tensor", "Scalar", "Tensor_Scalar", "Scalar_Tensor", "Tensor_Tensor", "Tensor_mode", "Scalar_mode"),
    *("int", "int_list", "dim", "dims", "dim_IntList", "self", "sizes", "using_ints", "dtype", "correction", "vec"),
    *("Dimname", "indices", "sections", "other", "device", "dtype_layout", "out", "start", "start_step", "tensor_list"),
)
"""Overloads that a name of one word may end with."""
ONE_WORD = re.compile(r"(?:executorch_exir_dialects_edge__ops_)?(aten|prims|dim_order_ops|(?i:stablehlo))_+(\w+)")
_OBJECT = re.compile(r"<(?:built-in )?(?:function|method|class) '?([\w.]+).*>")


@dataclass(frozen=True)
class Entry:
    """The properties of one operator; those of an unknown one are the defaults."""

    cost: str = ""
    gradient: Needs = "inputs"
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Operator:
    """An operator's name in parts, and its entry in the table."""

    namespace: str
    base: str
    overload: str
    is_gradient: bool = False
    """Whether it is the synthesized backward step of the operator."""
    entry: Entry | None = None
    """``None`` where the operator is unknown."""

    @property
    def is_unknown(self) -> bool:
        """Whether it has a name that the table does not hold. A node without a name only moves data between tensors."""
        return self.entry is None and self.base != ""

    @property
    def cost(self) -> str:
        """The name of its cost formula; empty where none is known."""
        return "" if self.entry is None or self.is_gradient else self.entry.cost

    @property
    def gradient_needs(self) -> Needs:
        """The operands that its gradient reads (contract §2)."""
        return Entry().gradient if self.entry is None else self.entry.gradient

    @property
    def is_elementwise(self) -> bool:
        """Whether an input of the output's shape and dtype may be overwritten."""
        return self._has("elementwise") and not self.is_gradient

    @property
    def is_random(self) -> bool:
        """Whether a second run gives another result. A gradient reads the mask that its forward step wrote."""
        return self._has("random") and not self.is_gradient

    @property
    def writes_statistics(self) -> bool:
        """Whether its outputs do not depend on what it overwrites."""
        return self._has("statistics")

    @property
    def keeps_position(self) -> bool:
        """Whether its place among other such operators is part of what it computes; so for an unknown operator."""
        return self.is_unknown or self.is_random or self._has("communicates") or self._has("effects")

    @property
    def repeats(self) -> bool:
        """Whether a second run gives the same result, once the state of the generator is restored."""
        return self.is_random or not self.keeps_position

    def _has(self, trait: str) -> bool:
        return self.entry is not None and trait in self.entry.traits


def plain(word: str) -> str:
    """``word`` as the table spells it: no case, hyphens or underscores."""
    return word.replace("_", "").replace("-", "").lower()


@lru_cache(maxsize=4096)
def operator_of(instr: str) -> Operator:
    """Return the operator that ``instr`` names."""
    text = instr.strip()
    text, is_gradient = text.removesuffix(GRADIENT), text.endswith(GRADIENT)
    if (found := _OBJECT.fullmatch(text)) is not None:
        text = found[1].rpartition(".")[2]
    if (found := ONE_WORD.fullmatch(text)) is not None:
        space, base, overload = one_word(found[1], found[2])
    else:
        space, base, overload = _parts(text)
    words = {plain(word) for word in re.split(r"::|\.", space) if word}
    known = TABLE.get(f"{plain(base)}.{plain(overload)}") or TABLE.get(plain(base))
    for family, names in (("hlo", HLO), ("aten", ATEN)):
        if words & names:
            known = TABLE.get(f"{family}:{plain(base)}", known)
    if not words <= NAMESPACES:
        known = None
    elif words & COMMUNICATION:
        known = TABLE["allreduce"]
    return Operator(space, base, overload, is_gradient, known)


def one_word(space: str, rest: str) -> tuple[str, str, str]:
    """Namespace, base name and overload of ``aten_add_Tensor``, given ``aten`` and ``add_Tensor``."""
    ends = [each for each in OVERLOADS if rest.endswith(f"_{each}") and plain(rest) not in TABLE]
    overload = max(ends, key=len, default="")
    return space, rest.removesuffix(f"_{overload}") if overload else rest, overload


def _parts(text: str) -> tuple[str, str, str]:
    """Namespace, base name and overload of a name with dots and colons."""
    space, colons, rest = text.rpartition("::")
    words = [word for word in rest.split(".") if word]
    count = 0
    while not colons and count < len(words) - 1 and plain(words[count]) in NAMESPACES:
        count += 1
        if words[count - 1] in ("aten", "prims"):
            break  # the next word is the operator, whatever it is
    if not words:
        return text, text, ""
    space = space if colons else ".".join(words[:count])
    if "modules" in words[:count] and count < len(words) - 1:
        count += 1  # torch.nn.modules.rnn.LSTM: the file of the class
    return space, "".join(words[count : count + 1]), ".".join(words[count + 1 :])


def _table() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for line in ROWS.splitlines():
        if not line.startswith((" ", "#")):
            row, _, line = line.partition(": ")
            cost, gradient, *traits = row.split() or ("-", "inputs")
            entry = Entry(cost.strip("-"), cast(Needs, gradient), frozenset(traits))
        if not line.startswith("#"):
            found.update(dict.fromkeys(line.split(), entry))
    return found


TABLE: dict[str, Entry] = _table()
"""Operator as :func:`plain` spells it → its properties."""
