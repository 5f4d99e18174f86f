"""The judge in a process of its own: ``python -m app.session.judging`` reads a pickled question, writes its answer.

The judge is plain Python and takes its time on a large plan. In a thread of the server it would take turns with every
click, so large plans are judged outside, politely. Both ends of the pipe are this file.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tmmu_core.graph.model import Graph
from tmmu_core.judge.finding import Verdict
from tmmu_core.judge.lint import lint_verdict
from tmmu_core.judge.verifier import verify_plan
from tmmu_core.plan.formats.reading import read_any
from tmmu_core.plan.model import Plan

OUTSIDE_FROM = 5_000
"""Tensors from which a plan is judged outside; below, starting a process takes longer than judging."""


@dataclass(frozen=True)
class Judgement:
    """What the verifier and the lint say."""

    verified: Verdict
    lint: Verdict


def judge(plan: Plan, graph: Graph | None, dims: Mapping[str, int] | None, cut_from: bytes | None = None) -> Judgement:
    """Judge here, now. ``cut_from`` is the ir_hash of the whole graph where ``graph`` is a rank's share of it."""
    return Judgement(
        verify_plan(plan, graph, dims=dims, cut_from=cut_from), lint_verdict(plan, graph, dims=dims, cut_from=cut_from)
    )


def judge_politely(
    plan: Plan,
    graph: Graph | None,
    dims: Mapping[str, int] | None,
    cut_from: bytes | None = None,
    file: tuple[bytes, str] | None = None,
) -> Judgement:
    """The same; a large plan in a process of its own.

    ``file`` is the content and the name of the file that ``graph`` was read from, where it was: handing that over is
    a fifth of the work of handing over the graph, and it is this process that has a page to draw.
    """
    if len(plan) < OUTSIDE_FROM:
        return judge(plan, graph, dims, cut_from)
    asked = (plan, graph if file is None else file, dims, cut_from)
    question = pickle.dumps(asked, protocol=pickle.HIGHEST_PROTOCOL)
    ended = subprocess.run([sys.executable, "-m", __name__], input=question, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")
    answer = pickle.loads(ended.stdout)
    assert isinstance(answer, Judgement)
    return answer


def main() -> None:
    """Answer the question on standard input."""
    os.nice(10)
    plan, graph, dims, cut_from = pickle.load(sys.stdin.buffer)
    if isinstance(graph, tuple):
        graph = read_any(*graph)
    # As a script this file is ``__main__``; the answer must name the module that the asker knows.
    from app.session import judging

    sys.stdout.buffer.write(pickle.dumps(judging.judge(plan, graph, dims, cut_from), protocol=pickle.HIGHEST_PROTOCOL))


if __name__ == "__main__":
    main()
