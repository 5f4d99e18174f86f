"""Parse operator names, and look up their properties in the operator table (:mod:`.operator_table`).

All spellings of an operator have the same properties: ``aten::mul.Tensor``, ``torch.ops.aten.mul``, ``aten.mul_``,
``ai.onnx::Mul``, ``stablehlo.multiply``, ``TFL.MUL``, ``MUL``. Operators of other namespaces have unknown properties.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, cast

from tmmu_core.graph.operator_table import ROWS

Needs = Literal["nothing", "inputs", "outputs", "both", "mask"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HLO = _words("stablehlo mhlo chlo hlo xla lax vhlo")
ATEN = _words("aten prims prim torch ops executorch dimorderops rngprims edge")
COMMUNICATION = _words("c10d c10dfunctional distributed dist nccl rccl gloo mpi horovod symmmem dtensor")
NAMESPACES = HLO | ATEN | COMMUNICATION
NAMESPACES |= _words(
    "ai onnx ml training preview com microsoft ms internal nchwc nhwc org pytorch pkg onnxscript torchlib tfl tf "
    "tflite tensorflow builtin rawops jax numpy np jnp nn functional f modules module activation special math linalg "
    "operator builtins keras layers exir dialects quantized quantizeddecomposed higherorder inductor tosa tensor "
    "tensorbase c variablefunctions"
)

GRADIENT = "_GRAD"  # suffix of the synthesized backward step of an operator
OVERLOADS = _words(
    "default Tensor Scalar Tensor_Scalar Scalar_Tensor Tensor_Tensor Tensor_mode Scalar_mode int int_list dim dims "
    "dim_IntList self sizes using_ints dtype correction vec Dimname indices sections other device dtype_layout out "
    "start start_step tensor_list"
)
"""Overloads that a one-word name can end with: ``aten_add_Tensor``."""
ONE_WORD = re.compile(
    r"(?:executorch_exir_dialects_edge__ops_|(?i:tfl|tflite)(?:\.|::))?(aten|prims|dim_order_ops|(?i:stablehlo))_+(\w+)"
)
_OBJECT = re.compile(r"<(?:built-in )?(?:function|method|class) '?([\w.]*\w)(?![\w.]).*>")  # ``repr`` of a function


@dataclass(frozen=True)
class Entry:
    """The properties of one operator. The defaults are those of an unknown operator."""

    cost: str = ""  # name of the cost formula; empty if unknown
    gradient_needs: Needs = "inputs"  # the operands that the gradient reads (contract §2)
    traits: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Operator(Entry):
    """The parts of an operator's name, and its properties; a backward step is neither random nor elementwise."""

    namespace: str = ""
    base: str = ""
    overload: str = ""
    is_gradient: bool = False  # whether the node is the synthesized backward step of the operator
    is_unknown: bool = False  # whether the operator is not in the table; a node without a name counts as a copy

    @property
    def is_elementwise(self) -> bool:
        """Whether the output may overwrite an input of the same shape and dtype."""
        return "elementwise" in self.traits

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers. A backward step does not: it reads the mask that the forward step wrote."""
        return "random" in self.traits

    @property
    def keeps_position(self) -> bool:
        """Whether it must keep its position in the order: it is random, communicates, has effects or is unknown."""
        return self.is_unknown or not self.traits.isdisjoint(("random", "communicates", "effects"))

    @property
    def can_recompute(self) -> bool:
        """Whether a second run has the same result, if the state of the random generator is restored."""
        return self.is_random or not self.keeps_position


def table_spelling(word: str) -> str:
    """Return ``word`` in the spelling of the table: lower case, without hyphens and underscores."""
    return word.replace("_", "").replace("-", "").lower()


@lru_cache(maxsize=4096)
def operator_of(instr: str) -> Operator:
    """Return the operator that ``instr`` names."""
    text, is_gradient = instr.strip().removesuffix(GRADIENT), instr.strip().endswith(GRADIENT)
    if (match := _OBJECT.fullmatch(text)) is not None:
        text = match[1]
    if (match := ONE_WORD.fullmatch(text)) is not None:
        namespace, base, overload = one_word_parts(match[1], match[2])
    else:
        namespace, base, overload = _parts(text)
    words = {table_spelling(word) for word in re.split(r"::|\.", namespace) if word}
    name = table_spelling(base)
    entry = TABLE.get(f"{name}.{table_spelling(overload)}") or TABLE.get(name)
    for family, namespaces in (("hlo", HLO), ("aten", ATEN)):
        if words & namespaces:
            entry = TABLE.get(f"{family}:{name}", entry)
    if not words <= NAMESPACES:
        entry = None
    elif words & COMMUNICATION:
        entry = TABLE["allreduce"]
    known = entry or Entry()
    cost, traits = ("", known.traits - {"elementwise", "random"}) if is_gradient else (known.cost, known.traits)
    is_unknown = entry is None and base != ""
    return Operator(cost, known.gradient_needs, traits, namespace, base, overload, is_gradient, is_unknown)


def one_word_parts(namespace: str, rest: str) -> tuple[str, str, str]:
    """Return namespace, base name and overload: for ``aten`` and ``add_Tensor``, ``("aten", "add", "Tensor")``."""
    overloads = [suffix for suffix in OVERLOADS if rest.endswith(f"_{suffix}") and table_spelling(rest) not in TABLE]
    overload = max(overloads, key=len, default="")
    return namespace, rest.removesuffix(f"_{overload}") if overload else rest, overload


def _parts(text: str) -> tuple[str, str, str]:
    """Return namespace, base name and overload of a name with dots and colons."""
    namespace, colons, rest = text.rpartition("::")
    words = [word for word in rest.split(".") if word]
    if not words:
        return text, text, ""
    base = 0  # position of the base name
    while not colons and base < len(words) - 1 and table_spelling(words[base]) in NAMESPACES:
        base += 1
        if words[base - 1] in ("aten", "prims"):
            break  # the next word is the operator, even if it is also a namespace word
    namespace = namespace if colons else ".".join(words[:base])
    if "modules" in words[:base] and base < len(words) - 1:
        base += 1  # torch.nn.modules.rnn.LSTM: skip the module file `rnn`
    return namespace, words[base], ".".join(words[base + 1 :])


def _table() -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for line in ROWS.splitlines():
        if not line.startswith((" ", "#")):
            properties, _, line = line.partition(": ")
            cost, gradient, *traits = properties.split()
            entry = Entry(cost.strip("-"), cast(Needs, gradient), frozenset(traits))
        if not line.startswith("#"):
            found.update(dict.fromkeys(line.split(), entry))
    return found


TABLE: dict[str, Entry] = _table()  # operator, as :func:`table_spelling` returns it → its properties
