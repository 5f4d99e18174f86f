"""Trace a saved program in a resource-limited subprocess.

The parent sends the archive's bytes and receives a native graph; both are plain data.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tmmu_core.base import limits
from tmmu_core.base.child_process import limit_process, run_module
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file

MARK = b"graph\n"  # begins the output of a child that has traced the program; a graph in CBOR follows


def trace_in_subprocess(data: bytes, name: str, point: Mapping[str, int]) -> Graph | None:
    """Return the joint graph of the program in ``data``; ``None`` if it cannot be traced within the limits.

    ``name`` is the graph's name. ``point``: symbol of an open size → value; default: that of the example inputs.
    """
    seconds, memory = limits.ceiling(limits.TRACE_SECONDS), limits.ceiling(limits.TRACE_BYTES)
    arguments = [str(seconds), str(memory), name or "program", json.dumps(dict(point))]
    try:
        child = run_module("tmmu_core.formats.pytorch.joint_graph.fx_child", arguments, data, seconds + 10)
    except (subprocess.TimeoutExpired, OSError):
        return None
    return native_file.decode(child.stdout[len(MARK) :], name) if child.stdout.startswith(MARK) else None


def main(arguments: Sequence[str]) -> None:
    """Run the child: read a program, and write ``MARK`` and its graph, or nothing if tracing fails.

    ``arguments``: limits in seconds and bytes, the graph's name, and ``point`` of :func:`trace_in_subprocess` as JSON.
    """
    seconds, memory, name, point = arguments
    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # PyTorch's messages must not mix with the graph
    limit_process(int(seconds), int(memory))
    with contextlib.suppress(Exception):  # any error of PyTorch: the parent then plans the program as saved
        from tmmu_core.formats.pytorch.exported_program.pt2_archive import read_program
        from tmmu_core.formats.pytorch.joint_graph.fx_program import rebuilt
        from tmmu_core.formats.pytorch.joint_graph.fx_trace import Call, joint_of, with_loss

        program = rebuilt(read_program(sys.stdin.buffer.read()).at(json.loads(point)))
        call = Call(tuple(program.example), {}, program.input_names)
        graph = joint_of(with_loss(program.module, None), call, program.is_loss, name)
        out.write(MARK + native_file.encode_cbor(graph))
        out.flush()
