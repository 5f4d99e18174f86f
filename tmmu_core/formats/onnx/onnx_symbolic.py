"""Complete shapes that the onnx package does not infer with onnxruntime's symbolic inference (extra ``run``).

It knows onnxruntime's own operators and some sums of sizes. Nothing of the model is executed.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import onnx

from tmmu_core.base import limits
from tmmu_core.base.child_process import answer_of, ended_by_limit
from tmmu_core.base.extras import install
from tmmu_core.formats.onnx.onnx_constant_folding import written_values
from tmmu_core.formats.onnx.onnx_model import Found, Known
from tmmu_core.formats.onnx.onnx_scope_shapes import scope_shapes
from tmmu_core.formats.onnx.onnx_scopes import Flat, is_scope
from tmmu_core.formats.onnx.onnx_shapes import DTYPES, Facts, bind
from tmmu_core.graph import dtypes

CHILD = "tmmu_core.formats.onnx.onnx_symbolic_child"
RUNTIMES_IR = 10
"""IR version declared to onnxruntime, which refuses later ones; it changes no shape."""
WAIT = 10
"""Wall-clock limit of the subprocess as a multiple of its processor time, for a busy machine."""


def missing_option() -> str:
    """Return what enables symbolic inference if it is not installed or not allowed; ``""`` if it is available."""
    if find_spec("onnxruntime") is None or find_spec("sympy") is None:
        return install("run")
    return "" if limits.ceiling(limits.RUN_SECONDS) else f"omit --no-run, or give --max-{limits.RUN_SECONDS.name} N"


def for_the_runtime(model: bytes) -> bytes:
    """Return ``model`` with an IR version that onnxruntime accepts: the last of a repeated field is valid."""
    later = model[:1] == b"\x08" and RUNTIMES_IR < model[1] < 0x80
    return model + bytes((0x08, RUNTIMES_IR)) if later else model


def symbolic_shapes(model: onnx.ModelProto, point: Mapping[str, int]) -> tuple[Known, str]:
    """Return the numeric shapes of symbolic inference at ``point`` by value, and the reason if there are none."""
    if any(is_scope(node) for node in model.graph.node):
        return {}, "it has no rules for If, Loop and Scan"
    seconds, memory = limits.ceiling(limits.RUN_SECONDS), limits.ceiling(limits.RUN_BYTES)
    late = f"it took more than {seconds} seconds of processor time (--max-{limits.RUN_SECONDS.name})"
    request = bind(model, dict(point)).SerializeToString()
    try:
        child = answer_of(CHILD, [str(seconds), str(memory)], request, WAIT * seconds)
        if ended_by_limit(child.returncode):
            return {}, late
        answer: dict[str, Any] = json.loads(child.stdout)
    except subprocess.TimeoutExpired:
        return {}, late
    except (OSError, ValueError):
        return {}, f"it ended without a result, perhaps out of memory (--max-{limits.RUN_BYTES.name})"
    shapes = answer.get("shapes", {})
    return {name: (element, list(shape)) for name, (element, shape) in shapes.items()}, answer.get("failed", "")


def complete(flat: Flat, facts: Facts, known: Known) -> None:
    """Write ``known`` shapes of values without a shape into ``facts``, and the shapes of scopes that follow."""
    for name in (name for node in flat.model.graph.node for name in node.output):
        if (name not in facts.shape or name not in facts.dtype) and name in known and known[name][0] in DTYPES:
            _write_shape(facts, name, known[name])
    whole: dict[str, Found] = {name: (_element(facts.dtype[name]), list(shape)) for name, shape in facts.shape.items()}

    def new_shapes() -> dict[str, Found]:
        more = scope_shapes(flat.model, whole, written_values(flat.model))
        return {n: f for n, f in more.items() if n not in facts.shape and None not in f[1] and f[0] in DTYPES}

    while found := new_shapes():
        for name, shaped in found.items():
            _write_shape(facts, name, shaped)
            whole[name] = shaped


def _write_shape(facts: Facts, name: str, found: Found) -> None:
    facts.dtype.setdefault(name, DTYPES[found[0]])
    facts.shape[name] = tuple([dim for dim in found[1] if dim is not None])
    facts.derived.add(name)
    facts.origin[name] = "symbolic"


def _element(dtype: str) -> int:
    return next(number for number, name in DTYPES.items() if name == dtypes.canonical(dtype))
