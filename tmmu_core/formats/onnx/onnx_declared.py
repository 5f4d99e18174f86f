"""Correct the shapes that an ONNX model declares and its operators contradict.

A size in ``value_info`` may be out of date: users change the batch of the inputs alone, and runtimes compute all other
shapes. Inference keeps declared sizes. It therefore runs without them first, and contradicted declarations are
replaced.

For pools that round up (``ceil_mode``) inference itself is wrong: it counts a last window that begins in the padding
after the image, which the operator omits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

from tmmu_core.formats.onnx.onnx_model import Known, copy_of, declaring

Shape = list[int | str | None]

MOST_ROUNDS = 16
"""Rounds of inference, each of which may correct the next of consecutive pools; networks have about five."""
POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def corrected(model: onnx.ModelProto, infer: Callable[[onnx.ModelProto], Known]) -> tuple[onnx.ModelProto, Known]:
    """Return the model with corrected declarations (itself if none is wrong), and what ``infer`` finds for it.

    ``infer`` runs once if it finds every size without declarations, or if there are none.
    """
    bare = _undeclared(model)
    known = infer(bare)
    pooled: Known = {}
    for _ in range(MOST_ROUNDS):
        rounded = {value: found for value, found in _pool_outputs(bare, known).items() if pooled.get(value) != found}
        if not rounded:
            break
        pooled |= rounded
        known = infer(declaring(bare, pooled))
    inputs = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim} - {""}
    wrong = {
        value.name: known[value.name]
        for value in (*model.graph.value_info, *model.graph.output)
        if value.name in known and _contradicted(value, known[value.name][1], inputs)
    }
    right = declaring(model, wrong | pooled)
    written = [value for node in model.graph.node for value in node.output if value]
    enough = all(value in known and all(isinstance(size, int) for size in known[value][1]) for value in written)
    return right, known if enough or bare is model else infer(right)


def _undeclared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without declared shapes of node outputs; itself if it has none."""
    written = {value for node in model.graph.node for value in node.output}

    def declared(of: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
        shaped = [value for value in (*of.graph.value_info, *of.graph.output) if value.name in written]
        return [value for value in shaped if value.type.tensor_type.HasField("shape")]

    if not declared(model):
        return model
    bare = copy_of(model)
    for value in declared(bare):
        value.type.tensor_type.ClearField("shape")
    return bare


def _contradicted(value: onnx.ValueInfoProto, inferred: Shape, inputs: set[str]) -> bool:
    """Whether a declaration has another rank or size; a number for an open size of an input is wrong too."""
    if not value.type.tensor_type.HasField("shape"):
        return False
    declared = value.type.tensor_type.shape.dim
    return len(declared) != len(inferred) or any(
        dim.HasField("dim_value") and dim.dim_value != size and (isinstance(size, int) or size in inputs)
        for dim, size in zip(declared, inferred, strict=True)
    )


def _pool_outputs(model: onnx.ModelProto, known: Known) -> Known:
    """Return the outputs of pools that round up, where inference finds another size."""
    found: Known = {}
    for node in model.graph.node:
        results = [value for value in node.output if value in known]
        if node.op_type not in POOLS or node.domain or not results or node.input[0] not in known:
            continue
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if not attributes.get("ceil_mode") or attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            continue
        windows = pool_windows(known[node.input[0]][1][2:], attributes)
        for value in results:
            element, shape = known[value]
            right = shape[:2] + [
                size if counted is None else counted for counted, size in zip(windows, shape[2:], strict=True)
            ]
            if right != shape:
                found[value] = element, right
    return found


def pool_windows(sizes: Shape, attributes: Mapping[str, Sequence[int]]) -> list[int | None]:
    """Return the number of windows of a pool that rounds up along each of ``sizes``: those that begin before the end of
    the image.
    """
    rank = len(attributes["kernel_shape"])
    padding, ones = attributes.get("pads") or [0] * (2 * rank), [1] * rank
    steps, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
    axes = zip(sizes, attributes["kernel_shape"], steps, dilations, padding[:rank], padding[rank:], strict=True)
    found: list[int | None] = []
    for size, kernel, step, dilation, before, after in axes:
        if not isinstance(size, int):
            found.append(None)
            continue
        windows = -(-(size + before + after - dilation * (kernel - 1) - 1) // step) + 1
        found.append(windows - ((windows - 1) * step >= size + before))
    return found
