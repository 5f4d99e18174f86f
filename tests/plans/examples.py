"""Plans small enough to check by hand."""

import numpy as np
from hypothesis import reject

from tests.support.build import chain, graph, node, tensor, view
from tests.support.strategies import Case
from tmmu_core.base.errors import ContractError
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import Problem
from tmmu_core.plans.making.engine import Solution, plan_graph
from tmmu_core.plans.making.instance import plan_problem
from tmmu_core.plans.model import Plan

Block = tuple[str, int, int, int]
"""id, birth, death, bytes."""


def problem_of(*blocks: Block, alignment: int = 64) -> Problem:
    """Return an instance; blocks are in the normative order."""
    ids, birth, death, size = zip(*blocks, strict=True)
    return Problem(
        arena="arena",
        ids=ids,
        birth=np.array(birth, np.int64),
        death=np.array(death, np.int64),
        size=np.array(size, np.uint64),
        alignment=np.full(len(ids), alignment, np.uint64),
        arena_alignment=alignment,
    )


def ledger_plan() -> Plan:
    """Three slots of 100, 50 and 64 bytes at 0, 128 and 192; extent 256::

    slot 2  @192 (64)   .  .  d  .
    slot 1  @128 (50)   .  b  b  b
    slot 0    @0 (100)  a  a  c  c      c has 40 of the 100 bytes
                 step   0  1  2  3
    """
    blocks = (("a", 0, 2, 100), ("b", 1, 4, 50), ("d", 2, 3, 64), ("c", 2, 4, 40))
    return plan_problem(problem_of(*blocks))


def solved(case: Case) -> Solution:
    """Plan a drawn case; reject a case that cannot be planned."""
    try:
        return plan_graph(case.graph, **case.arguments())
    except ContractError:
        reject()


def views_graph() -> Graph:
    """Return ``x → n0 → h`` with two views of ``h``, each with its own reader, and a parameter."""
    tensors = [
        tensor("x", 8, role="input"),
        tensor("w", 8, role="parameter"),
        tensor("h", 8),
        view("left", "h", 4, 0),
        view("right", "h", 4, 16),
        tensor("y", 4),
    ]
    nodes = [node("n0", "x w", "h", instr="MATMUL", inplace="none"), node("n1", "left right", "y", inplace="none")]
    return graph(tensors, nodes, "x", "y", name="views é")


def chain_plan(length: int = 4, **options: object) -> Plan:
    """Return the plan of a chain of element-wise nodes."""
    return plan_graph(chain(length), **options).plan  # type: ignore[arg-type]
