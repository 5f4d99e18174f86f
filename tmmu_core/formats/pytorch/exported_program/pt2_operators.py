"""Properties of PyTorch's operators: views, operators that may run in place, and control flow.

A saved program has the shape, strides and offset of each tensor, but not its storage. PyTorch's schemas mark results
that alias the first argument. ``tests/formats/pytorch/test_torch.py`` compares the tables of views and reshapes with
the schemas of the installed PyTorch, and lists the exceptions.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tmmu_core.formats import scopes
from tmmu_core.graph.operators import ONE_WORD, one_word_parts, words

Flow = Literal["branch", "loop", "map", "scan", "call"]
FLOWS: dict[str, Flow] = {
    "cond": "branch",
    "while_loop": "loop",
    "map_impl": "map",
    "scan": "scan",
    **dict.fromkeys(("invoke_subgraph", "wrap", "wrap_with_set_grad_enabled", "wrap_with_autocast"), "call"),
    "tag_activation_checkpoint": "call",
}
"""Operator of ``torch.ops.higher_order`` → its kind. Bodies of others (``associative_scan``) are not planned."""

VIEWS = words(  # the results are always views of the first argument
    "_conj _neg_view _reshape_alias _unsafe_view adjoint alias as_strided atleast_1d atleast_2d atleast_3d "
    "broadcast_to chunk conj detach detach_ diagonal expand expand_as hsplit dsplit vsplit imag lift_fresh "
    "linalg_diagonal mH mT matrix_H moveaxis movedim narrow numpy_T permute positive real resolve_neg select slice "
    "split split_with_sizes squeeze swapaxes swapdims t tensor_split transpose unbind unfold unsafe_chunk "
    "unsafe_split unsafe_split_with_sizes unsqueeze view view_as view_as_complex view_as_real"
)
# Further views in the namespace ``prims``, to which decompositions convert operators.
PRIM_VIEWS = words("broadcast_in_dim collapse_view slice_in_dim split_dim view_of view_of_dtype")
VIEWS_OF_ALL = words("broadcast_tensors meshgrid")  # return a view of each argument, in order
# The result is a view if the strides allow the new shape, else a copy.
RESHAPES = words("flatten ravel reshape reshape_as unflatten")
SAME_OR_COPY = words("contiguous cpu pin_memory resolve_conj sum_to_size to to_dense type_as")
"""Operators that return their first argument if it already has the requested property, else a copy."""
DROPOUTS = words("alpha_dropout dropout feature_alpha_dropout feature_dropout")
"""Operators that return their first argument if ``train`` is false or the probability ``p`` is 0."""
NO_BYTES = words(  # assertions and reads of metadata, which return no tensor
    "_assert_async _assert_scalar _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size sym_numel "
    "sym_size sym_storage_offset sym_stride"
)
CHANGED_COPIES = words(
    "as_strided_scatter copy diagonal_scatter fill index_add index_copy index_fill index_put index_reduce "
    "masked_scatter put scatter scatter_add scatter_reduce select_scatter slice_scatter"
)
"""Operators that copy their first argument and change elements. The result may overwrite only this argument."""
REDUCING_OVERLOADS = words("dim other_dim names_dim dim_IntList")  # ``max.dim`` reduces, ``max.other`` does not
_OUT_OVERLOADS = words(
    "L OutScalar_Other OutScalar_Self OutTensor Q U X dim_max dim_min dim_values eigenvalues eigvals grad_input "
    "inverse output result sign values values_stable"
)
"""Overloads that write their last arguments although no part of their name is ``out``: ``topk.values``."""
_IN_PLACE = words("__iand__ __ilshift__ __ior__ __irshift__ __ixor__")
_OPERATOR = re.compile(
    r"(?:torch\.ops\.|torch\._ops\.|executorch\.exir\.dialects\.edge\._ops\.)?(\w+)[.:]{1,2}(\w+)(?:\.(\w+))?"
)


@dataclass(frozen=True)
class Operator:
    """An operator with its namespace and overload."""

    space: str
    name: str
    overload: str = "default"

    @property
    def title(self) -> str:
        """Name in a graph: ``add.Tensor``, ``relu``, ``quantized.mul``."""
        space = f"{self.space}." if self.space not in ("", "aten", "higher_order") else ""
        return space + self.name + (f".{self.overload}" if self.overload != "default" else "")

    @property
    def is_in_place(self) -> bool:
        """Whether the operator writes and returns its first argument: ``add_``, ``__iand__``, but not ``__and__``."""
        has_in_place_name = self.name in _IN_PLACE or (self.name.endswith("_") and not self.name.startswith("__"))
        return self.space in ("aten", "prims") and has_in_place_name

    @property
    def has_out(self) -> bool:
        """Whether the operator writes and returns its last arguments, one per result: ``add.out``, ``topk.values``."""
        return self.space == "aten" and ("out" in self.overload.split("_") or self.overload in _OUT_OVERLOADS)


def operator(target: str) -> Operator:
    """Parse ``torch.ops.aten.add.Tensor``, ``aten::add.Tensor``, ExecuTorch's ``aten_add_Tensor``; else only a name."""
    if (edge := ONE_WORD.fullmatch(target)) is not None:
        space, name, overload = one_word_parts(edge[1], edge[2])
        return Operator(space, name, overload or "default")
    match = _OPERATOR.fullmatch(target)
    return Operator(match[1], match[2], match[3] or "default") if match else Operator("", target)


def matches(flow: Flow, groups: Sequence[Sequence[str]], inputs: list[int], outputs: list[int], results: int) -> bool:
    """Return whether operands and results fit the bodies. ``inputs``, ``outputs``: how many each body has."""
    groups_and_bodies = {"branch": (2, 2), "loop": (2, 2), "map": (2, 1), "scan": (3, 1)}  # number of each
    if flow != "call" and (len(groups), len(inputs)) != groups_and_bodies[flow]:
        return False
    arguments = sum(map(len, groups[1:] if flow == "branch" else groups))
    body_outputs = [1, results] if flow == "loop" else [results] * len(inputs)  # the first: a condition
    states = len(groups[0]) if groups else 0
    match_results = {"loop": states == results, "scan": states <= results}.get(flow, True)
    return inputs == [arguments] * len(inputs) and outputs == body_outputs and match_results


def flatten_bodies(
    flow: Flow, host: scopes.Host, site: scopes.Site, groups: Sequence[Sequence[str]], bodies: list[scopes.Flatten]
) -> None:
    """Flatten the bodies of a branch, loop, map or scan."""
    first, *others = map(tuple, groups)
    if flow == "branch":
        scopes.branch(host, site, first, list(zip(("then", "else"), bodies, strict=True)), others[-1])
    elif flow == "loop":
        scopes.repeat(host, site, bodies[1], first, others[0], condition=bodies[0])
    elif flow == "map":
        scopes.repeat(host, site, bodies[0], (), others[0], scanned=first)
    else:
        scopes.repeat(host, site, bodies[0], first, others[1], scanned=others[0])
