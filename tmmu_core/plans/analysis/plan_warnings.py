"""Conditions that changed a plan or limit its proofs, one sentence each (contract §12, ``warnings``)."""

from tmmu_core.plans.model import ASSUMED, GIVEN_OFFSETS, NO_CONTENT_HASH, READ, UNPLANNED, Plan


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings that follow from a plan alone, in a fixed order."""
    return (*input_warnings(plan), *reuse_warnings(plan))


def input_warnings(plan: Plan) -> tuple[str, ...]:
    """Return the warnings about the input: remarks of its reader, assumed sizes, and parts without a plan."""
    missing = f"incomplete: {plan.remark(UNPLANNED) or 'a part of the graph is not planned'}"
    return (*remarks(plan), *([missing] if plan.incomplete else []))


def remarks(plan: Plan) -> tuple[str, ...]:
    """Return the reader's remarks, the use of given offsets, assumed sizes, and a missing content hash."""
    sizes, given = plan.remark(ASSUMED), plan.remark(GIVEN_OFFSETS)
    texts = [plan.remark(READ), f"{given}; {plan.planner} places the other buffers." if given else ""]
    texts.append(f"sizes {sizes}" if sizes else "")
    if plan.remark(NO_CONTENT_HASH):
        texts.append("the file has no content hash; its claims were not checked.")
    return tuple(filter(None, texts))


def reuse_warnings(plan: Plan) -> tuple[str, ...]:
    """Return a warning where the planner left permitted in-place reuse unused."""
    untaken = len(plan.taken) - sum(plan.taken)
    noun = "in-place reuse" if untaken == 1 else "in-place reuses"
    return (f"{untaken:,} {noun} of {len(plan.taken):,} not taken by the planner.",) if untaken else ()
