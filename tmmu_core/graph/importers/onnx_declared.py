"""What an ONNX model declares of its values, held against what its operators make of them.

A size in ``value_info`` may be out of date: whoever gives a model another batch changes its inputs, and every runtime
goes by what is computed. Inference does not; it keeps what is declared. So it is asked without first, and what is
declared otherwise is corrected.

Of one operator inference itself is wrong: of a pool that rounds up (``ceil_mode``) it counts a last window that lies in
the padding behind the image alone, which the operator leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx

Shape = list[int | str | None]
Known = dict[str, tuple[int, Shape]]
"""Value → (element type, dimensions as number, name or ``None``)."""

MOST_ROUNDS = 16
"""Of inference, each of which may set the next pool of a row right; networks have some five in a row."""
POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def corrected(model: onnx.ModelProto, infer: Callable[[onnx.ModelProto], Known]) -> tuple[onnx.ModelProto, Known]:
    """The model with the shapes that it declares put right, itself where none is wrong; and what ``infer`` tells of it.

    Inference is asked once where it knows every size by itself, or where nothing is declared.
    """
    bare = _undeclared(model)
    known = infer(bare)
    pooled: Known = {}
    for _ in range(MOST_ROUNDS):
        rounded = {value: found for value, found in _pooled(bare, known).items() if pooled.get(value) != found}
        if not rounded:
            break
        pooled |= rounded
        known = infer(_declaring(bare, pooled))
    inputs = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim} - {""}
    wrong = {
        value.name: known[value.name]
        for value in (*model.graph.value_info, *model.graph.output)
        if value.name in known and _contradicted(value, known[value.name][1], inputs)
    }
    right = _declaring(model, wrong | pooled) if wrong or pooled else model
    written = [value for node in model.graph.node for value in node.output if value]
    enough = all(value in known and all(isinstance(size, int) for size in known[value][1]) for value in written)
    return right, known if enough or bare is model else infer(right)


def _undeclared(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without shapes of what nodes write, itself where it declares none."""
    written = {value for node in model.graph.node for value in node.output}

    def declared(of: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
        shaped = [value for value in (*of.graph.value_info, *of.graph.output) if value.name in written]
        return [value for value in shaped if value.type.tensor_type.HasField("shape")]

    if not declared(model):
        return model
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for value in declared(bare):
        value.type.tensor_type.ClearField("shape")
    return bare


def _contradicted(value: onnx.ValueInfoProto, inferred: Shape, inputs: set[str]) -> bool:
    """Whether what is declared is of another rank or size; a number for what an input leaves open is one too."""
    if not value.type.tensor_type.HasField("shape"):
        return False
    declared = value.type.tensor_type.shape.dim
    return len(declared) != len(inferred) or any(
        dim.HasField("dim_value") and dim.dim_value != size and (isinstance(size, int) or size in inputs)
        for dim, size in zip(declared, inferred, strict=True)
    )


def _declaring(model: onnx.ModelProto, shapes: Known) -> onnx.ModelProto:
    """A copy of the model that says these."""
    telling = onnx.ModelProto()
    telling.CopyFrom(model)
    infos = {value.name: value for value in (*telling.graph.value_info, *telling.graph.output)}
    for name, (element, shape) in shapes.items():
        value = infos.get(name) or telling.graph.value_info.add(name=name)
        value.CopyFrom(onnx.helper.make_tensor_value_info(name, element, shape))
    return telling


def _pooled(model: onnx.ModelProto, known: Known) -> Known:
    """The results of pools that round up, where inference tells another size."""
    found: Known = {}
    for node in model.graph.node:
        results = [value for value in node.output if value in known]
        if node.op_type not in POOLS or node.domain or not results or node.input[0] not in known:
            continue
        said = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        if not said.get("ceil_mode") or said.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            continue
        windows = pool_windows(known[node.input[0]][1][2:], said)
        for value in results:
            element, shape = known[value]
            right = shape[:2] + [
                theirs if mine is None else mine for mine, theirs in zip(windows, shape[2:], strict=True)
            ]
            if right != shape:
                found[value] = element, right
    return found


def pool_windows(sizes: Shape, said: Mapping[str, Sequence[int]]) -> list[int | None]:
    """Along each of ``sizes`` as many windows of a pool that rounds up as begin in the image or in front of it."""
    rank = len(said["kernel_shape"])
    padding = said.get("pads") or [0] * (2 * rank)
    ones = [1] * rank
    found: list[int | None] = []
    for axis, (size, kernel, step, dilation) in enumerate(
        zip(sizes, said["kernel_shape"], said.get("strides") or ones, said.get("dilations") or ones, strict=True)
    ):
        if not isinstance(size, int):
            found.append(None)
            continue
        before, after = padding[axis], padding[axis + rank]
        windows = -(-(size + before + after - dilation * (kernel - 1) - 1) // step) + 1
        found.append(windows - ((windows - 1) * step >= size + before))
    return found
